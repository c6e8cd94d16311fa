"""Routers: latency, multicast, back-pressure, switches and shared wires."""

from __future__ import annotations

import numpy as np
import pytest

from csnode.fabric.dtypes import Array
from csnode.fabric.instructions import Control, Delay, receive, send
from csnode.fabric.program import Port, Program
from csnode.fabric.region import Fabric
from csnode.fabric.simulator.execution import run
from tests.support.timing.fabric import line
from waferstream.machine.hardware.fabric import WSE2, WSE3, FabricSpec

SETUP = WSE2.vector_setup_cycles
RAMPS = 2 * WSE2.ramp_cycles + 1


def numbered(program: Program, length: int) -> Array:
    fabric = program.fabric
    return np.arange(fabric.num_pes * length).reshape(fabric.rows, fabric.columns, length)


@pytest.mark.parametrize("spec", [WSE2, WSE3])
@pytest.mark.parametrize("num_pes", [2, 5, 9])
def test_hops_and_ramps_take_their_cycles(spec: FabricSpec, num_pes: int) -> None:
    """One word over n hops: two ramps, n hops, one cycle each to send and to consume."""
    program, x = line(num_pes, 1, spec)
    program.do((0, 0), send(x.whole, 0))
    program.do((0, -1), receive(x.whole, 0))
    outcome = run(program, {"x": numbered(program, 1)})
    hops = (num_pes - 1) * spec.hop_cycles
    assert outcome.cycles == spec.vector_setup_cycles + 1 + 2 * spec.ramp_cycles + hops + 1
    assert outcome.read("x")[0, -1, 0] == 0


def test_turns_take_turn_cycles() -> None:
    """East then south is one turn: 20 cycles more on a WSE-3, none on a WSE-2."""
    cycles = {}
    for spec in (WSE2, WSE3):
        program = Program(Fabric(2, 2, spec))
        x = program.array("x", 1)
        program.route(0, (0, 0), Port.RAMP, Port.EAST)
        program.route(0, (0, 1), Port.WEST, Port.SOUTH)
        program.route(0, (1, 1), Port.NORTH, Port.RAMP)
        program.do((0, 0), send(x.whole, 0))
        program.do((1, 1), receive(x.whole, 0))
        cycles[spec] = run(program, {}).cycles - 2 * spec.hop_cycles
    assert cycles[WSE3] - cycles[WSE2] == 20


@pytest.mark.parametrize("words", [1, 9, 10, 80, 800])
def test_slow_wire_spaces_wavelets_out(words: int) -> None:
    """At 1.125 cycles per wavelet, 800 words take 898 cycles, plus latency."""
    program, x = line(3, words, WSE3)
    program.do((0, 0), send(x.whole, 0))
    program.do((0, -1), receive(x.whole, 0))
    latency = SETUP + RAMPS + 2 * WSE3.hop_cycles
    assert run(program, {}).cycles == latency + int(1.125 * (words - 1)) + 1


@pytest.mark.parametrize("num_pes", [2, 3, 5])
def test_stalled_receiver_stalls_its_sender(num_pes: int) -> None:
    """The sender stops when all queues are full; capacity returns by one router per cycle."""
    program, x = line(num_pes, 64)
    program.do((0, 0), send(x.whole, 0))
    program.do((0, -1), Delay(500), receive(x.whole, 0))
    outcome = run(program, {"x": numbered(program, 64)})
    np.testing.assert_array_equal(outcome.read("x")[0, -1], np.arange(64))
    wires = (num_pes - 1) * WSE2.hop_cycles + 2 * WSE2.ramp_cycles
    in_queues = (num_pes + 1) * WSE2.queue_wavelets + wires
    first_word = 500 + SETUP
    assert outcome.finish_cycles[0, 0] == first_word + 64 - in_queues + num_pes
    assert outcome.cycles == first_word + 64


def test_multicast_waits_for_the_slowest_receiver() -> None:
    """One stream reaches three cores completely, and a late core delays the others."""
    program, x = line(4, 64)
    program.route(0, np.s_[0, 1:-1], Port.WEST, Port.RAMP)
    program.do((0, 0), send(x.whole, 0))
    program.do(np.s_[0, 1:3], receive(x.whole, 0))
    program.do((0, 3), Delay(300), receive(x.whole, 0))
    outcome = run(program, {"x": numbered(program, 64)})
    np.testing.assert_array_equal(outcome.read("x"), np.tile(np.arange(64), (1, 4, 1)))
    assert (outcome.sent, outcome.received) == (64, 3 * 64)
    assert outcome.finish_cycles[0, 1] > 300


def test_two_streams_share_a_wire_fairly() -> None:
    """Two colours over one wire take twice as long together, and neither starves."""
    program = Program(Fabric(1, 3))
    x = program.array("x", 64)
    for colour, start in ((0, 0), (1, 1)):
        program.route(colour, (0, start), Port.RAMP, Port.EAST)
        program.route(colour, np.s_[0, start + 1 : 2], Port.WEST, Port.EAST)
        program.route(colour, (0, 2), Port.WEST, Port.RAMP)
        program.do((0, start), send(x.whole, colour))
        program.do((0, 2), receive(x.whole, colour), thread=colour)
    outcome = run(program, {})
    assert 128 <= outcome.cycles - SETUP <= 128 + 2 * RAMPS
    ends = outcome.finish_cycles[0, :2]
    assert abs(int(ends[0]) - int(ends[1])) < 20


def test_control_wavelet_moves_switches_behind_itself() -> None:
    """Words before it go to the first PE, words after it pass to the second."""
    program = Program(Fabric(1, 3))
    x = program.array("x", 4)
    program.route(0, (0, 0), Port.RAMP, Port.EAST)
    program.route(0, (0, 1), Port.WEST, Port.RAMP)
    program.route(0, (0, 1), Port.WEST, Port.EAST, position=1)
    program.route(0, (0, 2), Port.WEST, Port.RAMP)
    program.do((0, 0), send(x[:2], 0), Control(0), send(x[2:], 0))
    program.do((0, 1), receive(x[:2], 0))
    program.do((0, 2), receive(x[2:], 0))
    outcome = run(program, {"x": [[[1, 2, 3, 4], [0] * 4, [0] * 4]]})
    np.testing.assert_array_equal(outcome.read("x")[0], [[1, 2, 3, 4], [1, 2, 0, 0], [0, 0, 3, 4]])
    assert outcome.filtered == 1


def test_switch_in_ring_mode_returns_to_position_0() -> None:
    """After two control wavelets, the first route is active again."""
    program = Program(Fabric(1, 3))
    x = program.array("x", 3)
    program.route(0, (0, 0), Port.RAMP, Port.EAST)
    program.route(0, (0, 1), Port.WEST, Port.RAMP)
    program.route(0, (0, 1), Port.WEST, Port.EAST, position=1)
    program.ring_mode(0, (0, 1))
    program.route(0, (0, 2), Port.WEST, Port.RAMP)
    program.do((0, 0), *(op for k in range(3) for op in (send(x[k : k + 1], 0), Control(0))))
    program.do((0, 1), receive(x[:1], 0), receive(x[2:], 0))
    program.do((0, 2), receive(x[1:2], 0))
    outcome = run(program, {"x": [[[7, 8, 9], [0] * 3, [0] * 3]]})
    np.testing.assert_array_equal(outcome.read("x")[0, 1:], [[7, 0, 9], [0, 8, 0]])
