"""The machines of a simulation are those that the command line and cluster.yaml name."""

import logging

import pytest

from tests.support.reports.summaries import simulated_curve
from waferstream.machine.attribution import Attribution
from waferstream.machine.hardware import CS2, CS3, MachineSpec, override
from waferstream.machine.hardware.choice import Choice
from waferstream.reports.curve.text import footnotes
from waferstream.simulation.session import choices_of, with_note

SIMULATION = simulated_curve((1,), Attribution(compute=10**9))
"""On a CS-2."""
CHANGED = override(CS3, sram_bytes=CS3.sram_bytes * 2)


def test_system_of_the_cluster_keeps_its_numbers() -> None:
    """Beside a published one; a name alone does not take them back."""
    own = MachineSpec(system=CHANGED)
    found = choices_of(own, ("CS-2", "CS-3", "CS-2"))
    assert [each.machine.system for each in found] == [CS2, CHANGED]
    assert choices_of(own, ()) == [Choice(own, "")]


def test_numbers_of_another_system_are_told_to_be_left_out(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Before the simulation, as it may take long."""
    with caplog.at_level(logging.WARNING):
        choices_of(MachineSpec(system=CS3), ("CS-2",))
        assert not caplog.records
        choices_of(MachineSpec(system=CHANGED), ("CS-2",))
    assert "sram_bytes" in caplog.text


@pytest.mark.parametrize("note", ["", "sram_bytes of cluster.yaml does not count."])
def test_simulation_says_which_numbers_it_leaves_out(note: str) -> None:
    """Under the table and in JSON, where the reader of a file finds it."""
    found = with_note(SIMULATION, note)
    assert found.simulation is not None
    assert found.simulation.overruled == note
    assert (note in footnotes(found)) == bool(note)
