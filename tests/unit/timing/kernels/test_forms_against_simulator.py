"""Closed forms of collectives and resident products against the simulated fabric."""

from collections.abc import Callable

import numpy as np
import pytest

from csnode.fabric.collectives import (
    Tree,
    binomial,
    broadcast,
    broadcast_2d,
    chain,
    reduce,
    ring_all_reduce,
    snake_reduce,
    star,
    two_phase,
)
from csnode.fabric.dtypes import Dtype
from csnode.fabric.kernels import gemv as matvec
from csnode.fabric.kernels import summa, weight_gradient
from csnode.fabric.program import Program
from csnode.fabric.region import Fabric
from csnode.fabric.simulator import run
from timing.hardware.fabric import WSE2, WSE3, FabricSpec
from timing.kernels import Grid, collectives, resident
from validation.published_programs.products import gemv

TREES: dict[Callable[[int], Tree], Callable[[FabricSpec, int, float], float]] = {
    star: collectives.star,
    chain: collectives.chain,
    binomial: collectives.binomial,
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
@pytest.mark.parametrize("shape", [binomial, two_phase])
def test_what_waited_in_queues_is_taken_in_without_the_wire(
    machine: FabricSpec, shape: Callable[[int], Tree]
) -> None:
    """To the cycle for streams longer than all queues together, which fill while a PE is busy."""
    for pes in (7, 9):
        simulated = _simulated(reduce(Fabric(1, pes, machine), shape(pes), 200))
        assert TREES[shape](machine, pes, 200) == simulated, pes


@pytest.mark.parametrize("length", [10, 12])
def test_a_slow_wire_lets_fewer_words_of_the_last_group_pass(length: int) -> None:
    """To the cycle where an odd group waits for what a wire of 1.125 cycles a word lets ahead."""
    simulated = _simulated(reduce(Fabric(1, 8, WSE3), two_phase(8), length))
    assert collectives.two_phase(WSE3, 8, length) == simulated


@machines
@pytest.mark.parametrize(("pes", "length"), [(4, 8), (16, 64), (40, 64)])
def test_a_broadcast_takes_what_the_fabric_takes(
    machine: FabricSpec, pes: int, length: int
) -> None:
    """To the cycle."""
    simulated = _simulated(broadcast(Fabric(1, pes, machine), length))
    assert collectives.broadcast(machine, pes, length) == simulated


@machines
@pytest.mark.parametrize(("pes", "length"), [(2, 8), (3, 1), (4, 8), (9, 40)])
def test_a_ring_takes_what_the_fabric_takes(machine: FabricSpec, pes: int, length: int) -> None:
    """To the cycle."""
    simulated = _simulated(ring_all_reduce(Fabric(1, pes, machine), pes * length))
    assert collectives.ring_all_reduce(machine, pes, pes * length) == simulated


@machines
def test_two_dimensions_take_what_the_fabric_takes(machine: FabricSpec) -> None:
    """Broadcast over a rectangle, with its turn, and the snake through it."""
    fabric = Fabric(4, 6, machine)
    assert collectives.broadcast_2d(machine, 6, 4, 32) == _simulated(broadcast_2d(fabric, 32))
    assert collectives.snake_reduce(machine, 6, 4, 32) == _simulated(snake_reduce(fabric, 32))


@machines
@pytest.mark.parametrize("pes", [(1, 4), (4, 4), (6, 3)])
@pytest.mark.parametrize("tile", [(16, 8), (4, 24), (2, 2)])
def test_summa_is_near_on_rectangles(
    machine: FabricSpec, pes: tuple[int, int], tile: tuple[int, int]
) -> None:
    """Within 3.5 %, whether products hide the slices that move (16 x 8) or not (2 x 2)."""
    left = np.ones((pes[0] * tile[0], 2 * max(pes)))
    right = np.ones((2 * max(pes), pes[1] * tile[1]))
    taken = summa(Fabric(*pes, machine), left, right, Dtype.FP16).cycles
    form = resident.summa(machine, pes, tile, left.shape[1], "float16")
    assert form.total_cycles == pytest.approx(taken, rel=0.035)


@machines
@pytest.mark.parametrize("tile", [(4, 8, 2), (2, 16, 2), (1, 16, 32)])
def test_a_weight_gradient_is_near_also_with_few_outputs(
    machine: FabricSpec, tile: tuple[int, int, int]
) -> None:
    """Within 3.5 %: parts of several PEs are multiplied side by side, or one at a time."""
    (tokens, features, outputs), rows, columns = tile, 2, 4
    x, dy = (
        np.ones((rows * tokens, columns * features)),
        np.ones((rows * tokens, columns * outputs)),
    )
    taken = weight_gradient(Fabric(rows, columns, machine), x, dy, Dtype.FP16).cycles
    grid = Grid.whole(machine.model_copy(update={"rows": rows, "columns": columns}))
    form = resident.weight_gradient(grid, *x.shape, dy.shape[1], "float16")
    assert form.total_cycles == pytest.approx(taken, rel=0.035)


@machines
@pytest.mark.parametrize("columns", [1, 4, 9])
@pytest.mark.parametrize("tile", [(16, 16), (2, 32)])
def test_a_matrix_vector_product_is_near_also_on_one_column(
    machine: FabricSpec, columns: int, tile: tuple[int, int]
) -> None:
    """Within 2 %: one map over the inputs, then fp32 sums along the row if there is one."""
    matrix = np.ones((2 * tile[0], columns * tile[1]))
    taken = matvec(Fabric(2, columns, machine), matrix, matrix[0], Dtype.FP16).cycles
    grid = Grid.whole(machine.model_copy(update={"rows": 2, "columns": columns}))
    form = gemv(grid, *matrix.shape, "float16")
    assert form.total_cycles == pytest.approx(taken, rel=0.02)
