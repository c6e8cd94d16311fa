"""Closed forms of products of resident operands: steps, blocks, and the simulator."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from csnode.fabric import kernels
from csnode.fabric.dtypes import Dtype
from csnode.fabric.region import Fabric
from waferstream.machine.hardware import override
from waferstream.machine.hardware.fabric import WSE2, WSE3, FabricSpec
from waferstream.machine.kernels import Cycles, Grid, resident
from waferstream.machine.kernels.resident import (
    MovingOperand,
    gradient_block,
    product_in_steps,
    resident_product,
    triangular_solve,
)

LONG, SHORT = Cycles(compute=100), Cycles(compute=1)


SENT = 16 + 5
"""A vector instruction that sends, and the ramps of the two PEs."""


SMALL = override(WSE2, columns=4, rows=4)
machines = pytest.mark.parametrize("machine", [WSE2, WSE3], ids=["WSE-2", "WSE-3"])


def waits(product: Cycles, steps: int, *moving: MovingOperand) -> float:
    return product_in_steps(WSE2, product, steps, moving).fabric


def test_product_in_steps_hides_slices_behind_products() -> None:
    """Only the first slice is waited for: ten wavelets over three hops, and a signal."""
    first = SENT + 3 + 10 + 1
    assert [waits(LONG, steps, MovingOperand(4, 10)) for steps in (1, 2, 5)] == [first] * 3


def test_product_in_steps_waits_for_long_slices() -> None:
    """100 wavelets and their set-up exceed the product; the sender changes three of four times."""
    first, later = SENT + 3 + 100 + 1, 16 + 100 + 3 / 4 * (5 + 1) + 1
    assert waits(SHORT, 5, MovingOperand(4, 100)) == first + 4 * (later - 17)


def test_product_in_steps_shares_the_ramp() -> None:
    """100 and 50 wavelets enter one by one; the second operand has the longer way."""
    both = MovingOperand(4, 100), MovingOperand(8, 50)
    assert waits(SHORT, 1, *both) == SENT + 7 + 150 + 1
    assert waits(SHORT, 5, *both) == SENT + 7 + 150 + 1 + 4 * (150 - 17)


def test_product_in_steps_with_two_senders() -> None:
    """Slices of two senders come one after the other; the sender changes three of nine times."""
    two = MovingOperand(4, 100, senders=2)
    first, later = 2 * SENT + 3 + 200 + 1, 2 * (16 + 100 + 3 / 9 * (5 + 1)) + 1
    assert waits(SHORT, 5, two) == pytest.approx(first + 4 * (later - 17))


def test_product_in_steps_frees_buffers() -> None:
    """A signal per operand and step, except for the last two steps.

    Operands that do not move count as well.
    """
    moving = MovingOperand(4, 10), MovingOperand(1, 10)
    for steps, freed in ((1, 0), (2, 0), (5, 3 * 2)):
        assert product_in_steps(WSE2, LONG, steps, moving).setup == 16 * steps + freed


def test_product_in_steps_on_one_pe_moves_nothing() -> None:
    """Each step is its product and the set-up."""
    alone = product_in_steps(WSE2, LONG, 5, [MovingOperand(1, 10), MovingOperand(1, 10)])
    assert alone == Cycles(compute=500, setup=5 * 16)


@given(
    parts=st.integers(1, 800),
    tokens=st.integers(1, 200),
    inputs=st.integers(1, 60),
    outputs=st.integers(1, 60),
    must_divide=st.booleans(),
)
def test_gradient_block_fits_a_bank(
    parts: int, tokens: int, inputs: int, outputs: int, must_divide: bool
) -> None:
    """The gradients of a block fit into 6 KiB in fp32; a block is a power of two of parts."""
    for fabric in (WSE2, WSE3):
        block = gradient_block(
            fabric, parts, (tokens, inputs, outputs), "float16", must_divide=must_divide
        )
        assert block.bit_count() == 1
        assert block == 1 or block * inputs * outputs * 4 <= 6 * 1024
        assert block <= parts
        assert not must_divide or parts % block == 0


def test_gradient_block_is_the_fastest() -> None:
    """Eight of 64 parts, although all fit; two of larger tiles; one of the largest."""
    assert gradient_block(WSE2, 64, (10, 1, 1), "float16") == 8
    assert gradient_block(WSE2, 64, (1000, 32, 16), "float16") == 2
    assert gradient_block(WSE2, 6, (100, 2000, 1), "float16") == 1


def test_resident_product_of_more_products_than_pes() -> None:
    """32 products on 16 PEs take two rounds, each with its set-up."""
    grid = Grid.whole(SMALL)
    one, two = (resident_product(grid, n, 8, 8, 8, "float32") for n in (16, 32))
    assert two.total_cycles - one.total_cycles == 16 + 8 * 8 * (8 + 1)


def test_triangular_solve_waits_in_each_step() -> None:
    """On a PE of its own a system does not, and computes as long as a product."""
    grid = Grid.whole(SMALL)
    one, two = (triangular_solve(grid, 1, rows, 8, "float32") for rows in (4, 8))
    assert one.fabric == 4 * (SENT + 4 + 2 * 2 + 1)  # over five PEs, tiles of two by two
    assert two.setup == 2 * one.setup
    alone = triangular_solve(grid, 16, 8, 8, "float32")
    product = resident_product(grid, 16, 8, 8, 8, "float32")
    assert (alone.compute, alone.fabric) == (product.compute, 0.0)


@machines
@pytest.mark.parametrize("pes", [(1, 4), (4, 4), (6, 3)])
@pytest.mark.parametrize("tile", [(16, 8), (4, 24), (2, 2)])
def test_summa_matches_the_simulator(
    machine: FabricSpec, pes: tuple[int, int], tile: tuple[int, int]
) -> None:
    """Within 3.5 %, whether products hide the moving slices (16 x 8) or not (2 x 2)."""
    left = np.ones((pes[0] * tile[0], 2 * max(pes)))
    right = np.ones((2 * max(pes), pes[1] * tile[1]))
    taken = kernels.summa(Fabric(*pes, machine), left, right, Dtype.FP16).cycles
    form = resident.summa(machine, pes, tile, left.shape[1], "float16")
    assert form.total_cycles == pytest.approx(taken, rel=0.035)


@machines
@pytest.mark.parametrize("tile", [(4, 8, 2), (2, 16, 2), (1, 16, 32)])
def test_weight_gradient_matches_the_simulator(
    machine: FabricSpec, tile: tuple[int, int, int]
) -> None:
    """Within 3.5 %: parts of several PEs are multiplied side by side, or one at a time."""
    (tokens, features, outputs), rows, columns = tile, 2, 4
    x, dy = (
        np.ones((rows * tokens, columns * features)),
        np.ones((rows * tokens, columns * outputs)),
    )
    taken = kernels.weight_gradient(Fabric(rows, columns, machine), x, dy, Dtype.FP16).cycles
    grid = Grid.whole(machine.model_copy(update={"rows": rows, "columns": columns}))
    form = resident.weight_gradient(grid, *x.shape, dy.shape[1], "float16")
    assert form.total_cycles == pytest.approx(taken, rel=0.035)
