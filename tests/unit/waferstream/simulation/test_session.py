"""The machines of a simulation are those that the command line and cluster.yaml name."""

import logging
from dataclasses import replace

import pytest

from appliance.spec import ClusterSpec
from tests.support.reports.summaries import simulated_curve
from waferstream.machine.attribution import Attribution
from waferstream.machine.hardware import CS2, CS3, MachineSpec, WaferSpec, override
from waferstream.reports.curve.text import footnotes
from waferstream.simulation.session import machines_of, with_note

SIMULATION = simulated_curve((1,), Attribution(compute=10**9))
"""On a CS-2."""
CHANGED = override(CS3, sram_bytes=CS3.sram_bytes * 2)


def test_system_of_the_cluster_keeps_its_numbers() -> None:
    """Beside a published one; a name alone does not take them back."""
    cluster = ClusterSpec(machine=MachineSpec(system=CHANGED))
    found = machines_of(cluster, ("CS-2", "CS-3", "CS-2"))
    assert [each.machine.system for each in found] == [CS2, CHANGED]
    assert machines_of(cluster, ()) == [cluster]


def test_numbers_of_another_system_are_told_to_be_left_out(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Before the simulation, as it may take long."""
    with caplog.at_level(logging.WARNING):
        machines_of(ClusterSpec(machine=MachineSpec(system=CS3)), ("CS-2",))
        assert not caplog.records
        machines_of(ClusterSpec(machine=MachineSpec(system=CHANGED)), ("CS-2",))
    assert "sram_bytes" in caplog.text


@pytest.mark.parametrize(("own", "left_out"), [(CS2, ""), (CS3, ""), (CHANGED, "sram_bytes")])
def test_simulation_says_which_numbers_it_leaves_out(own: WaferSpec, left_out: str) -> None:
    """Under the table and in JSON, where the reader of a file finds it."""
    found = with_note(SIMULATION, own)
    assert found.simulation is not None
    assert left_out in found.simulation.overruled
    assert bool(left_out) == any("--system" in note for note in footnotes(found))


def test_system_of_the_cluster_is_never_left_out() -> None:
    """A changed CS-3 is the CS-3 that the flag names."""
    found = with_note(replace(SIMULATION, system="CS-3"), CHANGED)
    assert found.simulation is not None
    assert found.simulation.overruled == ""
