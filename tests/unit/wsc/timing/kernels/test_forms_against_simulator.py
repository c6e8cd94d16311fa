"""Closed forms of collectives against the simulated fabric, cycle by cycle."""

from collections.abc import Callable

import pytest

from csnode.fabric.collectives import (
    Tree,
    binary,
    broadcast,
    broadcast_2d,
    chain,
    reduce,
    ring_all_reduce,
    snake_reduce,
    star,
    two_phase,
)
from csnode.fabric.grid import Fabric
from csnode.fabric.program import Program
from csnode.fabric.simulator import run
from wsc.timing.hardware.fabric import WSE2, FabricSpec
from wsc.timing.kernels import collectives

TREES: dict[Callable[[int], Tree], Callable[[FabricSpec, int, float], float]] = {
    star: collectives.star,
    chain: collectives.chain,
    binary: collectives.tree,
    two_phase: collectives.two_phase,
}


def _simulated(program: Program) -> int:
    """Cycles after the first set-up, from where the closed forms count."""
    return run(program, {"x": 1.0}).cycles - WSE2.vector_setup_cycles


@pytest.mark.parametrize("shape", TREES)
@pytest.mark.parametrize("pes", [2, 4, 16])
@pytest.mark.parametrize("length", [1, 8, 64])
def test_reduces_take_what_the_fabric_takes(
    shape: Callable[[int], Tree], pes: int, length: int
) -> None:
    """Forms and fabric agree to the cycle on lines that groups and subtrees divide."""
    simulated = _simulated(reduce(Fabric(1, pes), shape(pes), length))
    assert TREES[shape](WSE2, pes, length) == simulated


@pytest.mark.parametrize("shape", TREES)
def test_ragged_lines_are_near(shape: Callable[[int], Tree]) -> None:
    """Where the last group or subtree is smaller, forms are within 5 %."""
    for pes, length in ((23, 16), (30, 64)):
        simulated = _simulated(reduce(Fabric(1, pes), shape(pes), length))
        assert TREES[shape](WSE2, pes, length) == pytest.approx(simulated, rel=0.05)


@pytest.mark.parametrize(("pes", "length"), [(4, 8), (16, 64)])
def test_ring_and_broadcast_take_what_the_fabric_takes(pes: int, length: int) -> None:
    """Both to the cycle."""
    line = Fabric(1, pes)
    ring = _simulated(ring_all_reduce(line, pes * length))
    assert collectives.ring_all_reduce(WSE2, pes, pes * length) == ring
    assert collectives.broadcast(WSE2, pes, length) == _simulated(broadcast(line, length))


def test_two_dimensions_take_what_the_fabric_takes() -> None:
    """Broadcast over a rectangle, and the snake through it."""
    fabric = Fabric(4, 6)
    assert collectives.broadcast_2d(WSE2, 6, 4, 32) == _simulated(broadcast_2d(fabric, 32))
    assert collectives.snake_2d(WSE2, 6, 4, 32) == _simulated(snake_reduce(fabric, 32))
