"""Threads of a PE: when a signal is heard, and columns of a matrix that streams fill."""

import numpy as np
import pytest

from csnode.fabric import Dtype, Fabric, Program, run
from csnode.fabric.collectives import add_broadcast, do_bus, paths, route_bus
from csnode.fabric.instructions import Delay, Signal, Stream, Vector, Wait
from timing.hardware.fabric import WSE2
from wsc.core.errors import ApplianceCompilationError


@pytest.mark.parametrize("others_signal", [3, 9, 10, 11])
def test_a_signal_is_heard_in_the_next_cycle_whatever_other_pes_do(others_signal):
    """The thread that waits goes on one cycle after the signal: 10, 1, then the vector op."""
    program = Program(Fabric(1, 2))
    x = program.array("x", 4)
    program.do(np.s_[0, 0], Delay(10), Signal(0), thread=0)
    program.do(np.s_[0, 0], Wait(0), Vector("copy", x.whole, x.whole), thread=1)
    program.do(np.s_[0, 1], Delay(others_signal), Signal(0), thread=0)
    program.do(np.s_[0, 1], Wait(0), thread=1)
    copied = WSE2.vector_setup_cycles + 2
    assert run(program, {}).finish_cycles[0, 0] == 10 + 1 + copied


def test_vector_ops_of_two_threads_take_turns():
    """A PE has one datapath; each waits for its own, however long those of others take."""
    program = Program(Fabric(1, 2))
    x = program.array("x", 40)
    for pe, length in ((0, 4), (1, 40)):
        for thread in (0, 1):
            op = Vector("copy", x[:length], x[:length])
            program.do(np.s_[0, pe], op, thread=thread)
    setup, finish_cycles = WSE2.vector_setup_cycles, run(program, {}).finish_cycles
    np.testing.assert_array_equal(finish_cycles, [[2 * (setup + 2), 2 * (setup + 20)]])


@pytest.mark.parametrize("dtype", list(Dtype))
def test_a_stream_fills_columns_of_a_matrix(dtype):
    """Three rows of four, into columns 2 to 5 of rows of eight, here and there; others stay."""
    program = Program(Fabric(1, 2))
    part, whole = program.array("part", 12, dtype), program.array("whole", 24, dtype)
    columns, line = whole.columns(2, 6, width=8), paths.rows(program.fabric)
    route_bus(program, line, 0)
    do_bus(program, line, 1, part.whole, columns, 0)
    found = run(program, {"part": np.arange(1, 13), "whole": -1.0})
    expected = -np.ones((2, 3, 8))
    expected[:, :, 2:6] = np.arange(1, 13).reshape(3, 4)
    np.testing.assert_array_equal(found.read("whole").reshape(2, 3, 8), expected)
    rows = found.memory.read(np.array([0, 1]), columns).reshape(2, 3, 4)
    np.testing.assert_array_equal(rows, expected[:, :, 2:6])


def test_columns_of_a_matrix_are_not_sent_and_are_whole_words():
    """What a stream reads is one run, and 16-bit runs are pairs."""
    program = Program(Fabric(1, 1))
    part, whole = program.array("part", 6, Dtype.FP16), program.array("whole", 24, Dtype.FP16)
    with pytest.raises(ApplianceCompilationError, match="cannot read columns"):
        program.do(np.s_[:, :], Stream(whole.columns(0, 2, width=8), store=part.whole))
    with pytest.raises(ApplianceCompilationError, match="whole number of words"):
        program.do(np.s_[:, :], Stream(part[:3], store=whole.columns(0, 1, width=8)))


@pytest.mark.parametrize("instruction", ["vector", "delay"])
def test_pes_of_one_role_that_are_an_instruction_apart_take_the_same_time(instruction):
    """Words reach each PE a cycle later; the first begins its next op as a later one its first."""
    program = Program(Fabric(1, 40))
    x, y = program.array("x", 1), program.array("y", 1, bank=2)
    op = Vector("copy", y.whole, x.whole) if instruction == "vector" else Delay(17)
    add_broadcast(program, paths.rows(program.fabric), x.whole, 0)
    program.do(np.s_[:, :], op, op, op)
    found = run(program, {"x": 1}).finish_cycles[0]
    np.testing.assert_array_equal(np.diff(found[1:-1]), 1)
