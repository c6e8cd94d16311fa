"""Threads of a PE, and signals between them."""

from __future__ import annotations

import numpy as np
import pytest

from csnode.fabric.collectives import paths
from csnode.fabric.collectives.broadcast import add_broadcast
from csnode.fabric.instructions import Delay, Signal, Vector, Wait, receive, send
from csnode.fabric.program import Program
from csnode.fabric.region import Fabric
from csnode.fabric.simulator.execution import run
from tests.support.timing.fabric import line
from waferstream.machine.hardware.fabric import WSE2

SETUP = WSE2.vector_setup_cycles


RAMPS = 2 * WSE2.ramp_cycles + 1


def test_threads_wait_for_signals() -> None:
    """A waiting thread continues after the signal, and not before."""
    program, x = line(2, 4)
    program.do((0, 0), Delay(200), Signal(0))
    program.do((0, 0), Wait(0), send(x.whole, 0), thread=1)
    program.do((0, 1), receive(x.whole, 0))
    assert 200 < run(program, {}).cycles < 200 + SETUP + RAMPS + 10


@pytest.mark.parametrize("others_signal", [3, 9, 10, 11])
def test_signal_arrives_in_the_next_cycle(others_signal: int) -> None:
    """The waiting thread continues one cycle after the signal, independent of other PEs."""
    program = Program(Fabric(1, 2))
    x = program.array("x", 4)
    program.do(np.s_[0, 0], Delay(10), Signal(0), thread=0)
    program.do(np.s_[0, 0], Wait(0), Vector("copy", x.whole, x.whole), thread=1)
    program.do(np.s_[0, 1], Delay(others_signal), Signal(0), thread=0)
    program.do(np.s_[0, 1], Wait(0), thread=1)
    copied = WSE2.vector_setup_cycles + 2
    assert run(program, {}).finish_cycles[0, 0] == 10 + 1 + copied


@pytest.mark.parametrize("instruction", ["vector", "delay"])
def test_threads_of_one_script_may_be_an_instruction_apart(instruction: str) -> None:
    """Words reach each PE a cycle later, so PEs of one script start the next op one by one."""
    program = Program(Fabric(1, 40))
    x, y = program.array("x", 1), program.array("y", 1, bank=2)
    op = Vector("copy", y.whole, x.whole) if instruction == "vector" else Delay(17)
    add_broadcast(program, paths.rows(program.fabric), x.whole, 0)
    program.do(np.s_[:, :], op, op, op)
    found = run(program, {"x": 1}).finish_cycles[0]
    np.testing.assert_array_equal(np.diff(found[1:-1]), 1)
