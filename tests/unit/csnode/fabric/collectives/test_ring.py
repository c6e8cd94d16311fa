"""Rings folded into a line: short links, unmixed colours, sums that end in their keeper."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from csnode.fabric.collectives import paths
from csnode.fabric.collectives.ring import Ring, do_ring_sum
from csnode.fabric.dtypes import Dtype, decode, encode
from csnode.fabric.program import Program
from csnode.fabric.region import Fabric
from csnode.fabric.simulator.execution import run
from waferstream.machine.hardware.fabric import WSE2

COLOURS = (0, 1, 2, 3)


SETUP = WSE2.vector_setup_cycles
MESSAGE = 2 * WSE2.ramp_cycles + 1


def routed(size: int, rows: int = 1) -> tuple[Program, Ring]:
    program = Program(Fabric(rows, size))
    ring = Ring(paths.rows(program.fabric), COLOURS)
    ring.route(program)
    return program, ring


@pytest.mark.parametrize("size", range(2, 14))
def test_ring_has_short_links_and_unmixed_colours(size: int) -> None:
    """Links span at most two hops; a router has one input and one output per colour."""
    program, ring = routed(size)
    assert sorted(ring.positions) == list(range(size))
    assert np.abs(np.diff(ring.positions, append=ring.positions[:1])).max() <= 2
    assert (ring.incoming != ring.outgoing).all()
    for colour in program.routes.values():
        (outputs,) = colour.outputs  # one switch position
        assert (np.count_nonzero(outputs, axis=0) <= 1).all()
        assert (np.bitwise_count(outputs) <= 1).all()


@settings(max_examples=20, deadline=None)
@given(size=st.integers(2, 12), words=st.integers(1, 12), data=st.data())
def test_ring_sum_ends_in_its_keeper(size: int, words: int, data: st.DataObject) -> None:
    """The sum passes all links but the one behind the keeper; other PEs keep nothing."""
    keeper = data.draw(st.integers(0, size - 1))
    program, ring = routed(size, rows=2)
    x, y = program.array("x", words), program.array("y", words)
    do_ring_sum(program, ring, keeper, x.whole, y.whole)
    values = np.random.default_rng(size).integers(-3, 4, (2, size, words))
    outcome = run(program, {"x": values})
    expected = np.zeros_like(values)
    expected[:, ring.positions[keeper]] = values.sum(axis=1)
    np.testing.assert_array_equal(outcome.read("y"), expected)
    hops = np.abs(np.roll(ring.positions, -1) - ring.positions)
    trip = MESSAGE * (size - 1) + np.delete(hops, keeper).sum()
    assert outcome.cycles == SETUP + words + trip


def test_ring_sum_rounds_16_bit_sums_at_every_pe() -> None:
    """Additions follow the order of the ring from the PE behind the keeper, bit for bit."""
    program, ring = routed(7)
    x, y = program.array("x", 4, Dtype.FP16), program.array("y", 4, Dtype.FP16)
    do_ring_sum(program, ring, 2, x.whole, y.whole)
    values = np.random.default_rng(3).normal(size=(7, 4)).astype(np.float32)
    stored = decode(encode(values, Dtype.FP16), Dtype.FP16)[np.roll(ring.positions, -3)]
    total = stored[0]
    for value in stored[1:]:
        total = decode(encode(total + value, Dtype.FP16), Dtype.FP16)
    found = run(program, {"x": values[None]}).read("y")[0, ring.positions[2]]
    np.testing.assert_array_equal(found, total)


def test_ring_sum_of_one_pe_copies() -> None:
    """A ring of one PE has nothing to add or route."""
    program, ring = routed(1)
    x, y = program.array("x", 3), program.array("y", 3)
    do_ring_sum(program, ring, 0, x.whole, y.whole)
    np.testing.assert_array_equal(run(program, {"x": [1, 2, 3]}).read("y")[0, 0], [1, 2, 3])
