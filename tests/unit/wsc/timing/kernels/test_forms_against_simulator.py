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
from wsc.timing.hardware.fabric import WSE2, WSE3, FabricSpec
from wsc.timing.kernels import collectives

TREES: dict[Callable[[int], Tree], Callable[[FabricSpec, int, float], float]] = {
    star: collectives.star,
    chain: collectives.chain,
    binary: collectives.tree,
    two_phase: collectives.two_phase,
}


machines = pytest.mark.parametrize("machine", [WSE2, WSE3], ids=["WSE-2", "WSE-3"])


def _simulated(program: Program) -> int:
    """Cycles after the first set-up, from where the closed forms count."""
    return run(program, {"x": 1.0}).cycles - program.fabric.spec.vector_setup_cycles


@machines
@pytest.mark.parametrize("shape", TREES)
@pytest.mark.parametrize("length", [1, 8, 40])
def test_reduces_take_what_the_fabric_takes(
    machine: FabricSpec, shape: Callable[[int], Tree], length: int
) -> None:
    """To the cycle, also where the last group or subtree is smaller than the others."""
    for pes in (2, 3, 4, 7, 16):
        simulated = _simulated(reduce(Fabric(1, pes, machine), shape(pes), length))
        assert TREES[shape](machine, pes, length) == simulated, pes


@machines
@pytest.mark.parametrize("shape", [binary, two_phase])
def test_what_waited_in_queues_is_taken_in_without_the_wire(
    machine: FabricSpec, shape: Callable[[int], Tree]
) -> None:
    """To the cycle for streams longer than all queues together, which fill while a PE is busy."""
    for pes in (7, 9):
        simulated = _simulated(reduce(Fabric(1, pes, machine), shape(pes), 200))
        assert TREES[shape](machine, pes, 200) == simulated, pes


@machines
@pytest.mark.parametrize(("pes", "length"), [(4, 8), (16, 64), (40, 64)])
def test_a_broadcast_takes_what_the_fabric_takes(
    machine: FabricSpec, pes: int, length: int
) -> None:
    """To the cycle."""
    simulated = _simulated(broadcast(Fabric(1, pes, machine), length))
    assert collectives.broadcast(machine, pes, length) == simulated


@pytest.mark.parametrize(("pes", "length"), [(4, 8), (16, 64)])
def test_a_ring_takes_what_the_fabric_takes(pes: int, length: int) -> None:
    """To the cycle."""
    ring = _simulated(ring_all_reduce(Fabric(1, pes), pes * length))
    assert collectives.ring_all_reduce(WSE2, pes, pes * length) == ring


@machines
def test_two_dimensions_take_what_the_fabric_takes(machine: FabricSpec) -> None:
    """Broadcast over a rectangle, with its turn, and the snake through it."""
    fabric = Fabric(4, 6, machine)
    assert collectives.broadcast_2d(machine, 6, 4, 32) == _simulated(broadcast_2d(fabric, 32))
    assert collectives.snake_2d(machine, 6, 4, 32) == _simulated(snake_reduce(fabric, 32))
