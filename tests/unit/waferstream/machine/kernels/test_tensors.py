"""Closed forms of elementwise ops, reductions, norms, softmax, loss and attention."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from waferstream.machine.hardware import override
from waferstream.machine.hardware.fabric import WSE2
from waferstream.machine.kernels import Cycles, Grid, collectives, tensors
from waferstream.machine.kernels.resident import (
    MovingOperand,
    product_in_steps,
    resident_product,
)

SMALL = Grid.whole(override(WSE2, columns=4, rows=4))


SHAPE = (2, 8, 8)
"""On 4 x 4 PEs: four tokens of two features on each."""


GRID = Grid.whole(WSE2)


PASS = 16 + 8 / 4


PER_TOKEN = 4 * 16 + 16
"""A special function of each token."""


def _along(values: int) -> float:
    """Return an all-reduce in a line of four PEs, with the set-ups of its two halves."""
    return collectives.all_reduce(SMALL.fabric, 4, values) + 2 * 16


def test_elementwise_is_one_instruction_per_tile() -> None:
    """2 x 8 x 8 elements on 4 x 4 PEs: 4 tokens of 2 features, 8 elements, 4 per cycle."""
    assert tensors.elementwise(SMALL, (2, 8, 8), "float16").total_cycles == 16 + 2
    assert tensors.elementwise(SMALL, (2, 8, 8), "float32").total_cycles == 16 + 8
    assert tensors.elementwise(SMALL, (), "float32").total_cycles == 16 + 1


def test_copy_and_gather_are_vector_copies() -> None:
    """A copy is one instruction; a gather has one per token, of two features each."""
    assert tensors.copy(SMALL, SHAPE, "float16").total_cycles == 16 + 8 / 4
    assert tensors.gather(SMALL, SHAPE, "float16").total_cycles == 4 * (16 + 2 / 4)


def test_random_numbers_are_drawn_one_by_one() -> None:
    """And compared or scaled, by two instructions."""
    cycles = tensors.random(SMALL, SHAPE, "float16")
    assert cycles.total_cycles == 8 * tensors.RANDOM_CYCLES + 2 * PASS


def test_reduction_depends_on_its_results() -> None:
    """Per token along the row, per feature down the column, to one number along both."""
    shape = (750 * 40, 750)
    per_token, per_feature, one = (
        tensors.reduction(GRID, shape, "float32", results).fabric for results in (30000, 750, 1)
    )
    assert len({per_token, per_feature, one}) == 3
    assert one > per_feature


def test_reduction_is_the_sum_of_its_parts() -> None:
    """One pass, then sums of four tokens, of two features, or of one number both ways."""
    down = {n: collectives.reduce(SMALL.fabric, 4, n) + 16 for n in (1, 2)}
    for results, sums in ((16, _along(4)), (8, down[2]), (1, _along(1) + down[1])):
        cycles = tensors.reduction(SMALL, SHAPE, "float16", results).total_cycles
        assert cycles == PASS + sums


def test_norm_is_the_sum_of_its_parts() -> None:
    """Two sums of each token along the row; backward, two of each feature down the column."""
    forward, backward = (tensors.norm(SMALL, SHAPE, "float16", backward=b) for b in (False, True))
    statistics = (16 + 8) + 5 * (16 + 4) + PER_TOKEN
    assert forward.total_cycles == 4 * PASS + _along(8) + statistics
    down = collectives.reduce(SMALL.fabric, 4, 4) + 16
    assert backward.total_cycles == 9 * PASS + _along(8) + down


def test_softmax_is_the_sum_of_its_parts() -> None:
    """40 tokens of 2 features: maxima and sums; exponentials and reciprocals; backward, one sum."""
    forward, backward = (
        tensors.softmax(SMALL, (20, 8, 8), "float16", backward=b) for b in (False, True)
    )
    passes, functions = 4 * (16 + 80 / 4), (80 + 40) * 16 + 2 * 16
    assert forward.total_cycles == passes + functions + 2 * _along(40)
    assert backward.total_cycles == passes + _along(40)


def test_loss_is_the_sum_of_its_parts() -> None:
    """A class of each token is copied and added; the sum goes along the row, then down."""
    line = collectives.reduce(SMALL.fabric, 4, 1) + 16
    expected = 4 * (16 + 1 / 4) + (16 + 4 / 4) + 2 * line
    assert tensors.loss(SMALL, SHAPE, "float16").total_cycles == expected


def test_attention_of_a_head_on_one_pe() -> None:
    """8 x 8 scores of head size 4: two products of 32 axpys, four passes over 64 scores, their
    exponentials, and a reciprocal per query. Nothing moves.
    """
    product, vector_pass = 32 * (2 + 1) + 16, 64 / 4 + 16
    softmax = 4 * vector_pass + (64 + 8) * 16 + 2 * 16
    forward, backward = (
        tensors.attention(SMALL, 16, 8, 8, 4, "float16", backward=b) for b in (False, True)
    )
    assert forward.total_cycles == product + softmax + product
    assert backward.total_cycles == 2 * product + softmax + 4 * vector_pass + 3 * product


def test_attention_of_a_head_on_two_pes_of_a_row() -> None:
    """Four keys each: maxima and sums of 4 queries are all-reduced, and 4 x 6 values reduced."""
    pair = Grid.whole(override(WSE2, columns=2, rows=1))
    scores = resident_product(pair, 1, 4, 6, 8, "float16")
    softmax = 4 * (16 / 4 + 16) + (16 + 4) * 16 + 2 * 16
    along = collectives.all_reduce(pair.fabric, 2, 4) + 2 * 16
    values = 4 * 6 * (1 + 1) + 16 + collectives.reduce(pair.fabric, 2, 12) + 16
    cycles = tensors.attention(pair, 1, 4, 8, 6, "float16")
    assert cycles.total_cycles == scores.total_cycles + softmax + 2 * along + values


def test_attention_of_a_head_on_two_pes_of_a_column() -> None:
    """Four queries each: in two steps, 4 keys of 3 values move in 6 words behind 12 axpys."""
    pair = Grid.whole(override(WSE2, columns=1, rows=2))
    scores = resident_product(pair, 1, 8, 6, 4, "float16")
    softmax = 4 * (16 / 4 + 16) + (16 + 4) * 16 + 2 * 16
    axpys, moved = Cycles(compute=12, setup=12), MovingOperand(2, 6)
    values = product_in_steps(pair.fabric, axpys, 2, [moved])
    cycles = tensors.attention(pair, 1, 8, 4, 6, "float16")
    assert cycles.total_cycles == scores.total_cycles + softmax + values.total_cycles


@given(heads=st.integers(1, 4000), tokens=st.integers(1, 600), size=st.integers(1, 128))
def test_attention_does_not_beat_the_peak(heads: int, tokens: int, size: int) -> None:
    """Two products of tokens x tokens x head size per head forward, five backward."""
    for backward, products in ((False, 2), (True, 5)):
        cycles = tensors.attention(GRID, heads, tokens, tokens, size, "float16", backward=backward)
        bound = products * heads * tokens * tokens * size / (GRID.num_pes * 4)
        assert cycles.total_cycles >= bound
