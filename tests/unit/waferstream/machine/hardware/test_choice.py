"""Which numbers count, and what is said of those that do not."""

from __future__ import annotations

from typing import Any

import pytest

from waferstream.core.config import validate
from waferstream.machine.hardware import CS2, CS3, MachineSpec
from waferstream.machine.hardware.choice import choose

FILES: dict[str, dict[str, Any]] = {
    "nothing": {},
    "a CS-3": {"system": "CS-3"},
    "a changed CS-3": {"system": {"name": "CS-3", "sram_bytes": 10**12}},
    "a changed link": {"system": "CS-3", "swarmx": {"fan_out": 2}},
    "Andromeda": {"name": "andromeda"},
    "Andromeda of CS-3": {"name": "andromeda", "system": "CS-3"},
    "more of Andromeda": {"name": "andromeda", "systems": 20},
}
"""Sections ``machine`` of cluster.yaml."""


@pytest.mark.parametrize(
    ("own", "name", "system", "told"),
    [
        ("nothing", None, "CS-2", ""),
        ("nothing", "CS-3", "CS-3", ""),
        ("a CS-3", "CS-2", "CS-2", ""),
        ("a changed CS-3", "CS-2", "CS-2", "system.sram_bytes"),
        ("a changed CS-3", "CS-3", "CS-3", ""),
        ("a changed CS-3", "condor-galaxy-3", "CS-3", "system.sram_bytes"),
        ("a changed link", "CS-2", "CS-2", ""),
        ("a changed link", "andromeda", "CS-2", "swarmx.fan_out"),
        ("Andromeda", "andromeda", "CS-2", ""),
        ("Andromeda", "CS-3", "CS-3", "system.name is CS-3, not CS-2"),
        ("Andromeda of CS-3", None, "CS-3", "system.name is CS-3, not CS-2"),
        ("more of Andromeda", "andromeda", "CS-2", "systems is 20, not 16"),
    ],
)
def test_what_counts_and_what_is_told(own: str, name: str | None, system: str, told: str) -> None:
    """A name beats what a file changes of another, and single numbers beat their own name."""
    machine = validate(MachineSpec, FILES[own], "machine")
    choice = choose(machine, name, "--system or --machine")
    assert choice.machine.system.name == system
    assert bool(choice.note) == bool(told)
    assert told in choice.note


def test_kind_of_system_decides_what_is_published() -> None:
    """Andromeda of CS-3 takes the times of CS-3, and has more systems than were built."""
    keys = {**FILES["Andromeda of CS-3"], "systems": 20}
    machine = validate(MachineSpec, keys, "machine")
    assert machine.published.system == CS3
    assert machine.published.systems == 16


def test_system_of_another_name_is_as_published() -> None:
    """What surrounds it stays."""
    own = validate(MachineSpec, FILES["a changed link"], "machine")
    machine = choose(own, "CS-2", "--system").machine
    assert (machine.system, machine.swarmx.fan_out) == (CS2, 2)
    assert choose(own, "condor-galaxy-3", "--machine").machine.system == CS3
