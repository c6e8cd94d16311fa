"""Training steps have the interval of their machine, shape, batch and number of systems."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.programs.small_programs import program
from waferstream.machine.hardware import MachineSpec
from waferstream.machine.intervals import Interval, Unknown, step_interval
from waferstream.machine.intervals.steps import machine_name


def _machine(**changes: Any) -> MachineSpec:
    return MachineSpec.model_validate(changes)


def test_interval_widens_with_the_number_of_systems() -> None:
    """Each system keeps its samples; no run of thousands of systems is published."""
    found = [step_interval(_machine(), program(), 64 * count, count) for count in (1, 10, 1000)]
    widths = [each.nine_tenths for each in found if isinstance(each, Interval)]
    assert len(widths) == 3
    assert widths == sorted(set(widths))


@pytest.mark.parametrize(
    "changes",
    [
        {"system": {"name": "CS-2", "clock_hz": 2_000_000_000}},
        {"swarmx": {"fan_out": 2}},
        {"jitter": {"stragglers": {"csx-0": 2.0}}},
    ],
    ids=["system", "swarmx", "jitter"],
)
def test_a_machine_with_other_numbers_is_unknown(changes: dict[str, Any]) -> None:
    """The reason names them."""
    found = step_interval(_machine(**changes), program(), 64, 1)
    assert isinstance(found, Unknown)
    (section, keys) = next(iter(changes.items()))
    key = next(key for key in keys if key != "name")
    assert f"a run on a CS-2 with another {section}.{key} (family training CS-2)" in found.reason


@pytest.mark.parametrize(
    "changes",
    [
        {"power": {"pue": 1.3}},
        {"memoryx": {"dram_bytes": 10**15}},
        {"memoryx": {"weight_servers": 4}},
        {"system": {"hosts": {"compile_size_ps": 1}}},
        {"systems": 2},
        {"activations": {"memory_bytes": 10**15}},
        {"name": "andromeda"},
    ],
    ids=["power", "dram", "servers", "hosts", "systems", "activations", "named"],
)
def test_what_decides_no_step_leaves_the_machine_known(changes: dict[str, Any]) -> None:
    assert machine_name(_machine(**changes)) == "CS-2"
