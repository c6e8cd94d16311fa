"""What can be changed of a configuration, and which configuration that is."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from appliance.spec import ClusterSpec
from tests.support.errors import raises
from tests.support.runs.tiny_run import TINY
from waferstream.config.params import Params
from waferstream.core.errors import ConfigError
from waferstream.explorer.knobs import COARSE_STOPS, at_rest, knobs_of
from waferstream.explorer.settings import Files, checked
from waferstream.machine.hardware import MachineSpec
from waferstream.machine.hardware.wafer import SYSTEMS

PARAMS = Params.model_validate(yaml.safe_load(yaml.safe_dump(TINY)))
CLUSTER = ClusterSpec()
KNOBS = knobs_of(PARAMS, CLUSTER)
NAMES = [
    "systems", "kind", "batch", "sequence", "layers", "density", "clock", "fan_out", "links", "memory",
]  # fmt: skip


def with_settings(**settings: Any) -> Any:
    return Files(PARAMS, CLUSTER).with_settings(checked(settings, KNOBS), KNOBS)


def test_a_language_model_has_every_knob() -> None:
    assert [knob.name for knob in KNOBS] == NAMES


@pytest.mark.parametrize("knob", KNOBS, ids=NAMES)
def test_stops_ascend_around_the_value_of_the_files(knob: Any) -> None:
    assert list(knob.stops) == sorted(set(knob.stops))
    assert knob.value in knob.stops
    assert knob.least <= knob.stops[0]
    assert knob.stops[-1] <= knob.most


@pytest.mark.parametrize("knob", KNOBS, ids=NAMES)
def test_coarse_stops_are_few_and_reach_both_ends(knob: Any) -> None:
    assert set(knob.coarse) <= set(knob.stops)
    assert list(knob.coarse) == sorted(set(knob.coarse))
    assert len(knob.coarse) == min(COARSE_STOPS, len(knob.stops))
    assert {knob.value, knob.stops[0], knob.stops[-1]} <= set(knob.coarse)


def test_a_cluster_has_the_systems_that_it_has() -> None:
    machine = MachineSpec.model_validate({"name": "andromeda"})
    systems = knobs_of(PARAMS, CLUSTER.model_copy(update={"machine": machine}))[0]
    assert (systems.stops[-1], systems.most) == (16, 16)


def test_own_zeros_leave_no_knob_for_them() -> None:
    data = PARAMS.dump()
    data["trainer"]["init"]["sparsity"] = {"algorithm": "static", "sparsity": 0.5}
    assert "density" not in [knob.name for knob in knobs_of(Params.model_validate(data), CLUSTER)]


def test_knobs_at_rest_change_nothing() -> None:
    found = with_settings(**at_rest(KNOBS))
    assert (found.params, found.cluster, found.changes) == (PARAMS, CLUSTER, {})


def test_moved_knobs_change_their_keys_alone() -> None:
    found = with_settings(systems=4, batch=32, density=0.25, fan_out=2, links=10**11)
    init = found.params.trainer.init
    assert init.backend.cluster_config.num_csx == 4
    assert found.params.trainer.fit.train_dataloader.batch_size == 32
    machine = found.cluster.machine
    assert machine.swarmx.fan_out == 2
    rates = (
        machine.swarmx.link_bandwidth_bytes_per_s,
        machine.memoryx.bandwidth_bytes_per_s,
        machine.system.io_bandwidth_bytes_per_s,
    )
    assert set(rates) == {10**11}
    assert machine.system.clock_hz == CLUSTER.machine.system.clock_hz
    assert yaml.safe_load(found.yaml)["trainer"]["init"]["sparsity"]["sparsity"] == 0.75


def test_switch_takes_the_other_system_as_published() -> None:
    """What was moved beside it counts, what was not is that of the other system."""
    found = with_settings(kind=2, fan_out=2)
    machine = found.cluster.machine
    assert (machine.system, machine.swarmx.fan_out) == (SYSTEMS["CS-3"], 2)
    assert found.changes["machine.system.name"] == "CS-3"
    clocked = with_settings(kind=2, clock=10**9).cluster.machine.system
    assert (clocked.name, clocked.clock_hz) == ("CS-3", 10**9)


def test_system_with_numbers_of_its_own_has_no_switch() -> None:
    machine = MachineSpec.model_validate({"system": {"name": "CS-2", "clock_hz": 10**9}})
    names = [k.name for k in knobs_of(PARAMS, CLUSTER.model_copy(update={"machine": machine}))]
    assert names == [name for name in NAMES if name != "kind"]


def test_a_longer_sequence_has_its_positions() -> None:
    found = with_settings(sequence=64)
    assert found.changes["trainer.init.model.max_position_embeddings"] == 64


@pytest.mark.parametrize(
    ("settings", "code"),
    [
        ({"clok": 1}, "unknown-key"),
        ({"batch": "many"}, "wrong-type"),
        ({"batch": 1.5}, "wrong-type"),
        ({"batch": True}, "wrong-type"),
        ({"batch": None}, "wrong-type"),
        ({"batch": 0}, "out-of-range"),
        ({"systems": 10**9}, "out-of-range"),
        ({"density": float("nan")}, "out-of-range"),
        ({"fan_out": 8}, "fan-out-exceeds-ports"),
    ],
    ids=lambda value: value if isinstance(value, str) else "-".join(value),
)
def test_nonsense_is_refused(settings: dict[str, Any], code: str) -> None:
    with raises(ConfigError, code):
        with_settings(**settings)
