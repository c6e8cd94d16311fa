"""Products whose operands move along lines of PEs: steps written out, blocks that fit."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from timing.hardware.fabric import WSE2, WSE3
from timing.kernels import Cycles
from timing.kernels.resident import (
    MovingOperand,
    gradient_block,
    product_in_steps,
)

LONG, SHORT = Cycles(compute=100), Cycles(compute=1)
SENT = 16 + 5
"""A vector instruction that sends, and the ramps of the two PEs."""


def waits(product: Cycles, steps: int, *moving: MovingOperand) -> float:
    return product_in_steps(WSE2, product, steps, moving).fabric


def test_a_slice_that_comes_behind_a_longer_product_is_not_waited_for() -> None:
    """But for the first: ten wavelets over three hops, and a signal."""
    first = SENT + 3 + 10 + 1
    assert [waits(LONG, steps, MovingOperand(4, 10)) for steps in (1, 2, 5)] == [first] * 3


def test_each_further_slice_waits_for_what_its_product_does_not_hide() -> None:
    """100 wavelets and their set-up; three of four times another PE has its turn."""
    first, later = SENT + 3 + 100 + 1, 16 + 100 + 3 / 4 * (5 + 1) + 1
    assert waits(SHORT, 5, MovingOperand(4, 100)) == first + 4 * (later - 17)


def test_two_operands_share_the_ramp() -> None:
    """100 and 50 wavelets one by one; the longer way is that of the second."""
    both = MovingOperand(4, 100), MovingOperand(8, 50)
    assert waits(SHORT, 1, *both) == SENT + 7 + 150 + 1
    assert waits(SHORT, 5, *both) == SENT + 7 + 150 + 1 + 4 * (150 - 17)


def test_the_slices_of_two_senders_come_one_after_the_other() -> None:
    """Three of nine times, between them, the turn changes."""
    two = MovingOperand(4, 100, senders=2)
    first, later = 2 * SENT + 3 + 200 + 1, 2 * (16 + 100 + 3 / 9 * (5 + 1)) + 1
    assert waits(SHORT, 5, two) == pytest.approx(first + 4 * (later - 17))


def test_buffers_are_freed_for_all_steps_but_the_first_two() -> None:
    """By a signal for each operand, whether it moves or not."""
    moving = MovingOperand(4, 10), MovingOperand(1, 10)
    for steps, freed in ((1, 0), (2, 0), (5, 3 * 2)):
        assert product_in_steps(WSE2, LONG, steps, moving).setup == 16 * steps + freed


def test_what_lies_on_one_pe_does_not_move() -> None:
    """Each step is its product and the set-up."""
    alone = product_in_steps(WSE2, LONG, 5, [MovingOperand(1, 10), MovingOperand(1, 10)])
    assert alone == Cycles(compute=500, setup=5 * 16)


@given(
    parts=st.integers(1, 800),
    tokens=st.integers(1, 200),
    inputs=st.integers(1, 60),
    outputs=st.integers(1, 60),
    even=st.booleans(),
)
def test_a_block_of_gradients_fits_a_bank(
    parts: int, tokens: int, inputs: int, outputs: int, even: bool
) -> None:
    """Of 6 KiB, in fp32: a power of two of parts, one at least, and a divisor if asked for."""
    for fabric in (WSE2, WSE3):
        block = gradient_block(fabric, parts, (tokens, inputs, outputs), "float16", even=even)
        assert block.bit_count() == 1
        assert block == 1 or block * inputs * outputs * 4 <= 6 * 1024
        assert block <= parts
        assert not even or parts % block == 0


def test_the_fastest_block_is_taken() -> None:
    """Eight, although all 64 would fit; of larger tiles two fit, of the largest not even one."""
    assert gradient_block(WSE2, 64, (10, 1, 1), "float16") == 8
    assert gradient_block(WSE2, 64, (1000, 32, 16), "float16") == 2
    assert gradient_block(WSE2, 6, (100, 2000, 1), "float16") == 1
