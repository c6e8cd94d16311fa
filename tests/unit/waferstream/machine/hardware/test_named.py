"""Machines that people name stand for published numbers."""

from __future__ import annotations

from pathlib import Path

import pytest

from appliance.spec import ClusterSpec
from tests.support.errors import raises
from waferstream.core.config import load_yaml, validate
from waferstream.core.errors import ConfigError
from waferstream.machine.hardware import MachineSpec
from waferstream.machine.hardware.named import PRESETS

ROOT = Path(__file__).parents[5]


@pytest.mark.parametrize("name", PRESETS)
def test_named_machine_has_its_numbers(name: str) -> None:
    """As published, and the same once it is written out and read again."""
    machine = MachineSpec(name=name)
    named = PRESETS[name]
    assert machine == machine.published
    assert (machine.system.name, machine.systems) == (named.system, named.systems)
    assert validate(MachineSpec, machine.model_dump(mode="json"), "machine") == machine


@pytest.mark.parametrize(
    ("name", "inventory"),
    [("andromeda", "andromeda"), ("condor-galaxy-1", "condor_galaxy")],
)
def test_inventory_of_the_queue_has_the_same_systems(name: str, inventory: str) -> None:
    systems = load_yaml(ROOT / f"deploy/inventories/{inventory}.yaml")["systems"]
    assert len(systems) == PRESETS[name].systems
    assert {system["kind"] for system in systems} == {PRESETS[name].system}


def test_keys_of_a_file_win_over_the_name() -> None:
    """Single numbers of a section too; the rest is as published."""
    keys = {"name": "condor-galaxy-3", "memoryx": {"flash_bytes": 7}, "system": {"clock_hz": 9}}
    machine = validate(ClusterSpec, {"machine": keys}, "cluster.yaml").machine
    published = machine.published
    assert machine.memoryx == published.memoryx.model_copy(update={"flash_bytes": 7})
    assert machine.system == published.system.model_copy(update={"clock_hz": 9})


def test_unknown_machine_is_refused_with_the_nearest_name() -> None:
    with raises(ConfigError, "unknown-machine") as refused:
        MachineSpec(name="condor-galaxy-9")
    assert "condor-galaxy" in str(refused.value.remedy)


@pytest.mark.parametrize(
    ("systems", "code"),
    [(0, "out-of-range"), (-1, "out-of-range"), (True, "wrong-type"), (1.5, "wrong-type")],
)
def test_number_of_systems_is_positive(systems: object, code: str) -> None:
    with raises(ConfigError, code):
        validate(MachineSpec, {"systems": systems}, "machine")


def test_machine_has_only_its_systems() -> None:
    """A cluster without a number has as many as are asked for."""
    MachineSpec().check_systems(10**6)
    MachineSpec(name="andromeda").check_systems(16)
    with raises(ConfigError, "too-few-systems"):
        MachineSpec(name="andromeda").check_systems(17)
