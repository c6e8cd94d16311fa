"""Routers: latency, multicast, pressure, switches, shared wires, and what is refused."""

import numpy as np
import pytest

from csnode.fabric import (
    Control,
    Delay,
    Dtype,
    Fabric,
    Port,
    Program,
    Signal,
    Stream,
    Wait,
    receive,
    run,
    send,
)
from timing.hardware.fabric import WSE2, WSE3
from wsc.core.errors import ApplianceCompilationError, ApplianceDeadlockError

SETUP = WSE2.vector_setup_cycles
RAMPS = 2 * WSE2.ramp_cycles + 1


def line(num_pes, length=8, spec=WSE2, dtype=Dtype.FP32):
    """A program on one row, colour 0 leading from the first PE to the last."""
    program = Program(Fabric(1, num_pes, spec))
    x = program.array("x", length, dtype)
    program.route(0, np.s_[0, 0], Port.RAMP, Port.EAST)
    program.route(0, np.s_[0, 1:-1], Port.WEST, Port.EAST)
    program.route(0, np.s_[0, -1], Port.WEST, Port.RAMP)
    return program, x


def numbered(program, length):
    fabric = program.fabric
    return np.arange(fabric.num_pes * length).reshape(fabric.rows, fabric.columns, length)


@pytest.mark.parametrize("spec", [WSE2, WSE3])
@pytest.mark.parametrize("num_pes", [2, 5, 9])
def test_a_hop_and_a_ramp_take_their_cycles(spec, num_pes):
    """One word over n hops: two ramps, n hops, one cycle each to send and to consume."""
    program, x = line(num_pes, 1, spec)
    program.do((0, 0), send(x.whole, 0))
    program.do((0, -1), receive(x.whole, 0))
    outcome = run(program, {"x": numbered(program, 1)})
    hops = (num_pes - 1) * spec.hop_cycles
    assert outcome.cycles == spec.vector_setup_cycles + 1 + 2 * spec.ramp_cycles + hops + 1
    assert outcome.read("x")[0, -1, 0] == 0


def test_a_turn_takes_longer_where_the_hardware_says_so():
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
def test_a_slow_wire_spaces_wavelets_out(words):
    """At 1.125 cycles per wavelet 800 words are 898 cycles apart, and latency on top."""
    program, x = line(3, words, WSE3)
    program.do((0, 0), send(x.whole, 0))
    program.do((0, -1), receive(x.whole, 0))
    latency = SETUP + RAMPS + 2 * WSE3.hop_cycles
    assert run(program, {}).cycles == latency + int(1.125 * (words - 1)) + 1


@pytest.mark.parametrize("num_pes", [2, 3, 5])
def test_a_stalled_receiver_stalls_the_sender_and_loses_nothing(num_pes):
    """It stops when all queues are full, and room comes back to it by one router a cycle."""
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


def test_multicast_delivers_to_all_and_waits_for_the_slowest():
    """One stream to three cores: each gets every word, and a late one holds up the others."""
    program, x = line(4, 64)
    program.route(0, np.s_[0, 1:-1], Port.WEST, Port.RAMP)
    program.do((0, 0), send(x.whole, 0))
    program.do(np.s_[0, 1:3], receive(x.whole, 0))
    program.do((0, 3), Delay(300), receive(x.whole, 0))
    outcome = run(program, {"x": numbered(program, 64)})
    np.testing.assert_array_equal(outcome.read("x"), np.tile(np.arange(64), (1, 4, 1)))
    assert (outcome.sent, outcome.received) == (64, 3 * 64)
    assert outcome.finish_cycles[0, 1] > 300


def test_two_streams_share_a_wire_fairly():
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


def test_a_control_wavelet_moves_the_switch_behind_itself():
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


def test_a_switch_in_ring_mode_returns_to_its_first_position():
    """Two control wavelets later the route is the first again."""
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


def test_threads_of_a_pe_wait_for_signals():
    """A thread that waits goes on after the signal, and not before."""
    program, x = line(2, 4)
    program.do((0, 0), Delay(200), Signal(0))
    program.do((0, 0), Wait(0), send(x.whole, 0), thread=1)
    program.do((0, 1), receive(x.whole, 0))
    assert 200 < run(program, {}).cycles < 200 + SETUP + RAMPS + 10


def test_a_receive_without_a_sender_is_a_deadlock():
    """The error names the PE and the instruction that waits."""
    program, x = line(2)
    program.do((0, 1), receive(x.whole, 0))
    with pytest.raises(ApplianceDeadlockError, match="PE 1 at Stream"):
        run(program, {})


def test_words_that_no_one_receives_are_an_error():
    """All threads end, but wavelets wait in front of a core."""
    program, x = line(2, 2)
    program.do((0, 0), send(x.whole, 0))
    with pytest.raises(ApplianceDeadlockError, match="left over"):
        run(program, {})


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda p, x: p.route(24, (0, 0), Port.RAMP, Port.EAST), "no such colour"),
        (lambda p, x: p.route(0, (0, 0), Port.RAMP, Port.EAST, position=4), "no such switch"),
        (lambda p, x: p.route(0, (0, 9), Port.RAMP, Port.EAST), "outside the fabric"),
        (lambda p, x: p.do((0, 0), send(x.whole, 5)), "without routes"),
        (lambda p, x: p.do((0, 0), Stream(send=0)), "no length"),
        (lambda p, x: p.do((0, 0), Stream(store=x.whole, send=0)), "no source"),
        (lambda p, x: p.do((0, 0), send(x[:3], 0)), "whole number of words"),
        (lambda p, x: p.do((0, 0), Delay(1), thread=8), "no such thread"),
        (lambda p, x: p.route(0, (0, 1), Port.RAMP, Port.EAST), "leaves the region"),
        (lambda p, x: p.route(1, (0, 0), Port.RAMP, Port.EAST), "router that has none"),
    ],
)
def test_programs_that_cannot_run_are_refused(build, message):
    """Each broken rule has its own words."""
    program, x = line(2, 4, dtype=Dtype.FP16)

    def build_and_run():
        build(program, x)
        run(program, {})

    with pytest.raises(ApplianceCompilationError, match=message):
        build_and_run()


def test_data_must_fit_an_array():
    """Unknown names and wrong shapes are refused before anything runs."""
    program, _ = line(2, 4)
    with pytest.raises(ApplianceCompilationError, match="no array 'y'"):
        run(program, {"y": [0]})
    with pytest.raises(ApplianceCompilationError, match="wrong shape"):
        run(program, {"x": np.zeros(5)})


def test_a_core_needs_a_ramp_to_send_and_to_receive():
    """A colour that only passes a PE can neither be sent nor received there."""
    for op, what in ((send, "cannot send"), (receive, "cannot receive")):
        program, x = line(3, 2)
        program.do((0, 1), op(x.whole, 0))
        with pytest.raises(ApplianceCompilationError, match=what):
            run(program, {})


def test_one_thread_receives_a_colour():
    """Two at once would share its words by chance."""
    program, x = line(2, 4)
    program.do((0, 1), receive(x.whole, 0))
    program.do((0, 1), receive(x.whole, 0), thread=1)
    with pytest.raises(ApplianceCompilationError, match="one colour at the same time"):
        run(program, {})
