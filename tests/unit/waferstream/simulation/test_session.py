"""The machines of a simulation are those that the command line and cluster.yaml name."""

import logging

import pytest

from appliance.spec import ClusterSpec
from waferstream.machine.hardware import CS2, CS3, MachineSpec, override
from waferstream.simulation.session import machines_of

CHANGED = override(CS3, sram_bytes=CS3.sram_bytes * 2)


def test_system_of_the_cluster_keeps_its_numbers() -> None:
    """Beside a published one; a name alone does not take them back."""
    cluster = ClusterSpec(machine=MachineSpec(system=CHANGED))
    found = machines_of(cluster, ("CS-2", "CS-3", "CS-2"))
    assert [each.machine.system for each in found] == [CS2, CHANGED]
    assert machines_of(cluster, ()) == [cluster]


def test_numbers_that_no_named_system_has_are_reported(caplog: pytest.LogCaptureFixture) -> None:
    """A file may change what the command line leaves out."""
    with caplog.at_level(logging.WARNING):
        machines_of(ClusterSpec(machine=MachineSpec(system=CS3)), ("CS-2",))
        assert not caplog.records
        machines_of(ClusterSpec(machine=MachineSpec(system=CHANGED)), ("CS-2",))
    assert "CS-3 of cluster.yaml, which changes sram_bytes" in caplog.text
