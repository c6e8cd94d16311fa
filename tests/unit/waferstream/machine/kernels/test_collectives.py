"""Closed forms of collectives: limits, and the simulator."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from csnode.fabric.collectives.programs import (
    broadcast,
    broadcast_2d,
    reduce,
    ring_all_reduce,
    snake_reduce,
)
from csnode.fabric.collectives.trees import Tree, binomial, chain, star, two_phase
from csnode.fabric.program import Program
from csnode.fabric.region import Fabric
from csnode.fabric.simulator.execution import run
from waferstream.machine.hardware.fabric import WSE2, WSE3, FabricSpec
from waferstream.machine.kernels import collectives

pes = st.integers(1, 600)


wavelets = st.integers(1, 5000)


REDUCES = (collectives.star, collectives.chain, collectives.binomial, collectives.two_phase)


TREES: dict[Callable[[int], Tree], Callable[[FabricSpec, int, float], float]] = {
    star: collectives.star,
    chain: collectives.chain,
    binomial: collectives.binomial,
    two_phase: collectives.two_phase,
}


machines = pytest.mark.parametrize("machine", [WSE2, WSE3], ids=["WSE-2", "WSE-3"])


def _simulated(program: Program) -> int:
    """Return the cycles after the first set-up, from where the closed forms count."""
    return run(program, {"x": 1.0}).cycles - program.fabric.spec.vector_setup_cycles


@given(pes=pes, length=wavelets)
def test_no_reduce_beats_its_lower_bounds(pes: int, length: int) -> None:
    """The root receives every wavelet of its neighbour, and waits for the farthest PE."""
    bound = max(length, pes - 1) if pes > 1 else 0
    for form in REDUCES:
        assert form(WSE2, pes, length) >= bound
    assert collectives.reduce(WSE2, pes, length) == min(f(WSE2, pes, length) for f in REDUCES)


@given(pes=pes, length=wavelets)
def test_collectives_grow_with_pes_and_wavelets(pes: int, length: int) -> None:
    """Chain, star, tree and broadcast grow with both."""
    for form in (collectives.star, collectives.chain, collectives.binomial, collectives.broadcast):
        assert form(WSE2, pes + 1, length) >= form(WSE2, pes, length)
        assert form(WSE2, pes, length + 1) >= form(WSE2, pes, length)


def test_best_reduce_changes_with_the_length() -> None:
    """On a row of a wafer: a star for single wavelets, two-phase in between, a chain for many."""
    best = {
        length: min(REDUCES, key=lambda form: form(WSE2, 750, length)) for length in (1, 256, 16384)
    }
    assert best == {
        1: collectives.star,
        256: collectives.two_phase,
        16384: collectives.chain,
    }


def test_star_after_broadcast_gains_on_near_pes() -> None:
    """31 PEs send two wavelets: the root has received 30 when the farthest PE starts."""
    assert collectives.star(WSE2, 32, 2) == 6 + 62
    assert collectives.star(WSE2, 32, 2, after_broadcast=True) == 6 + 62 - 30
    assert (
        collectives.star(WSE2, 32, 1, after_broadcast=True) == 31 + 5 + 1
    )  # the way of the farthest
    assert collectives.star(WSE2, 2, 9, after_broadcast=True) == collectives.star(WSE2, 2, 9)


@given(pes=pes, length=wavelets)
def test_reduce_after_broadcast_helps_only_stars(pes: int, length: int) -> None:
    """A chain, and trees of chains, wait for the farthest PE anyway."""
    aligned = collectives.reduce(WSE2, pes, length)
    waved = collectives.reduce_after_broadcast(WSE2, pes, length)
    assert waved <= aligned
    assert waved == aligned or aligned == collectives.star(WSE2, pes, length)
    gained = collectives.all_reduce(WSE2, pes, length) - collectives.all_reduce(
        WSE2, pes, length, after_broadcast=True
    )
    assert 0 <= gained <= aligned - waved


def test_collectives_on_one_pe_take_no_time() -> None:
    """Every collective on a line of one PE takes 0 cycles."""
    forms = (*REDUCES, collectives.broadcast, collectives.all_reduce, collectives.ring_all_reduce)
    assert [form(WSE2, 1, 100) for form in forms] == [0.0] * len(forms)


def test_chain_pays_for_slow_hops_and_links() -> None:
    """A WSE-3 takes two cycles per hop and 1.125 per wavelet (K0093, K0094)."""
    assert collectives.chain(WSE3, 11, 801) == 1.125 * 800 + 1 + 10 * (2 + 5)


def test_two_phase_of_one_wavelet_waits_for_the_farthest_pe() -> None:
    """20 groups of 20: 19 hops down the last group, 19 from leader to leader, and one wavelet."""
    assert collectives.two_phase(WSE2, 400, 1) == 19 * (1 + 5) + 19 * (20 + 5) + 1


@machines
@pytest.mark.parametrize("shape", TREES)
@pytest.mark.parametrize("length", [1, 8, 40])
def test_reduces_match_the_simulator(
    machine: FabricSpec, shape: Callable[[int], Tree], length: int
) -> None:
    """Equal to the cycle, also where the last group or subtree is smaller than the others."""
    for pes in (2, 3, 4, 7, 16):
        simulated = _simulated(reduce(Fabric(1, pes, machine), shape(pes), length))
        assert TREES[shape](machine, pes, length) == simulated, pes


@machines
@pytest.mark.parametrize("shape", [binomial, two_phase])
def test_reduces_of_long_streams_match_the_simulator(
    machine: FabricSpec, shape: Callable[[int], Tree]
) -> None:
    """Equal to the cycle for streams longer than all queues, which fill while a PE is busy."""
    for pes in (7, 9):
        simulated = _simulated(reduce(Fabric(1, pes, machine), shape(pes), 200))
        assert TREES[shape](machine, pes, 200) == simulated, pes


@pytest.mark.parametrize("length", [10, 12])
def test_two_phase_on_a_slow_wire_matches_the_simulator(length: int) -> None:
    """Equal to the cycle where wavelets of the last group pass on a wire of 1.125 cycles a word."""
    simulated = _simulated(reduce(Fabric(1, 8, WSE3), two_phase(8), length))
    assert collectives.two_phase(WSE3, 8, length) == simulated


@machines
@pytest.mark.parametrize(("pes", "length"), [(4, 8), (16, 64), (40, 64)])
def test_broadcast_matches_the_simulator(machine: FabricSpec, pes: int, length: int) -> None:
    """Equal to the cycle."""
    simulated = _simulated(broadcast(Fabric(1, pes, machine), length))
    assert collectives.broadcast(machine, pes, length) == simulated


@machines
@pytest.mark.parametrize(("pes", "length"), [(2, 8), (3, 1), (4, 8), (9, 40)])
def test_ring_all_reduce_matches_the_simulator(machine: FabricSpec, pes: int, length: int) -> None:
    """Equal to the cycle."""
    simulated = _simulated(ring_all_reduce(Fabric(1, pes, machine), pes * length))
    assert collectives.ring_all_reduce(machine, pes, pes * length) == simulated


@machines
def test_2d_collectives_match_the_simulator(machine: FabricSpec) -> None:
    """Broadcast over a rectangle, with its turn, and the snake through it."""
    fabric = Fabric(4, 6, machine)
    assert collectives.broadcast_2d(machine, 6, 4, 32) == _simulated(broadcast_2d(fabric, 32))
    assert collectives.snake_reduce(machine, 6, 4, 32) == _simulated(snake_reduce(fabric, 32))
