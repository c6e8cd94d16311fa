"""Norm, softmax, attention and the like, vector instructions, and the table of all families."""

from dataclasses import astuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from timing.hardware.fabric import WSE2, WSE3, WSE3_SIMULATOR, FabricSpec
from timing.kernels import Cycles, Grid, collectives, tensors
from timing.kernels.op_costs import KERNELS, form_of, op_cycles
from timing.kernels.resident import (
    MovingOperand,
    product_in_steps,
    resident_product,
    weight_gradient,
)
from timing.kernels.single_pe import elements_per_cycle, scalar_dot_cycles, vector_cycles
from timing.kernels.streaming import weight_streaming
from wsc.compiler.supported_ops import _FAMILIES
from wsc.core.errors import ApplianceCompilationError
from wsc.core.program import OpWork

GRID = Grid.whole(WSE2)
SMALL = Grid.whole(FabricSpec(columns=4, rows=4))
SHAPES = {
    "matmul": (1, 4096, 768, 3072),
    "attention": (96, 256, 256, 64),
}


def _work(kind: str, op: str = "op", *, streams: bool = False) -> OpWork:
    shape = SHAPES.get(kind, (8, 512, 768))
    return OpWork(op=op, kind=kind, flops=8 * 512, shape=shape, streams=streams)


def test_every_family_of_the_compiler_has_a_form() -> None:
    """No captured op is without a cost, and no form is without ops."""
    assert set(KERNELS) == set(_FAMILIES)


@pytest.mark.parametrize("kind", sorted(set(_FAMILIES) - {"view"}))
@pytest.mark.parametrize("op", ["op", "op_backward", "gelu", "nll_loss_forward"])
def test_every_form_takes_time_on_every_wafer(kind: str, op: str) -> None:
    """Costs are finite and positive, and no part is negative."""
    for fabric in (WSE2, WSE3, WSE3_SIMULATOR):
        cycles = op_cycles(Grid.whole(fabric), _work(kind, op), "bfloat16")
        assert 0 < cycles.total_cycles < 1e9
        assert min(astuple(cycles)) >= 0


def test_a_view_is_free() -> None:
    """Nothing moves."""
    assert op_cycles(GRID, _work("view"), "float16") == Cycles()


@pytest.mark.parametrize("kind", sorted(_FAMILIES))
@pytest.mark.parametrize("op", ["op", "op_backward", "gelu", "nll_loss_forward"])
@pytest.mark.parametrize("hidden_pes", [750, 107])
def test_the_tokens_of_the_fullest_pe_decide(kind: str, op: str, hidden_pes: int) -> None:
    """An op costs what it does with as many on every PE, so ops of like sizes cost the same."""
    grid, work = Grid(WSE2, hidden_pes), _work(kind, op, streams=True)
    form = form_of(work)
    assert form.on(grid).cycles(grid, "float16") == op_cycles(grid, work, "float16")
    if kind not in {"matmul", "attention", "reduction", "view"}:
        longer = form_of(work._replace(shape=(8, 513, 768)))
        assert longer != form
        assert longer.on(grid) == form.on(grid)


def test_a_loss_has_a_form_of_its_own() -> None:
    """The compiler files it under softmax, but it picks one class of each token."""
    work = _work("softmax", "nll_loss_forward")
    assert op_cycles(GRID, work, "float16") == tensors.loss(GRID, work.shape, "float16")
    assert op_cycles(GRID, work, "float16") != op_cycles(GRID, _work("softmax"), "float16")


def test_only_special_functions_go_element_by_element() -> None:
    """An addition is one vector instruction; a gelu has a function of each element besides."""
    add, gelu = (op_cycles(GRID, _work("elementwise", op), "float16") for op in ("add", "gelu"))
    assert add == tensors.elementwise(GRID, (8, 512, 768), "float16")
    assert gelu == tensors.transcendental(GRID, (8, 512, 768), "float16")


def test_an_unknown_family_is_refused() -> None:
    """The error names the op and the families."""
    with pytest.raises(ApplianceCompilationError, match="no cost") as refusal:
        op_cycles(GRID, _work("sorcery", "abracadabra"), "float16")
    assert "abracadabra" in str(refusal.value)


def test_products_are_told_apart_by_whether_a_weight_streams() -> None:
    """With a streamed weight, tokens are rows; else a single product is a weight gradient."""
    streamed = op_cycles(GRID, _work("matmul", streams=True), "float16")
    assert streamed == weight_streaming(GRID, 4096, 768, 3072, "float16")
    resident = op_cycles(GRID, _work("matmul"), "float16")
    assert resident == weight_gradient(GRID, 768, 4096, 3072, "float16")


def test_density_reaches_streamed_products_alone() -> None:
    """Sparse weights make their products faster and change nothing else."""
    resident = _work("matmul")
    streamed = resident._replace(shape=(64, 4096, 768, 3072), streams=True)
    sparse, dense = (op_cycles(GRID, streamed, "float16", d).total_cycles for d in (0.1, 1.0))
    assert sparse < dense
    assert op_cycles(GRID, resident, "float16", 0.1) == op_cycles(GRID, resident, "float16", 1.0)


def test_an_elementwise_op_is_one_instruction_over_the_tile() -> None:
    """2 x 8 x 8 elements on 4 x 4 PEs: 4 tokens of 2 features, 8 elements, 4 per cycle."""
    assert tensors.elementwise(SMALL, (2, 8, 8), "float16").total_cycles == 16 + 2
    assert tensors.elementwise(SMALL, (2, 8, 8), "float32").total_cycles == 16 + 8
    assert tensors.elementwise(SMALL, (), "float32").total_cycles == 16 + 1


def test_a_reduction_goes_the_way_of_its_results() -> None:
    """Per token along the row, per feature down the column, to one number along both."""
    shape = (750 * 40, 750)
    per_token, per_feature, one = (
        tensors.reduction(GRID, shape, "float32", results).fabric for results in (30000, 750, 1)
    )
    assert len({per_token, per_feature, one}) == 3
    assert one > per_feature


def test_backward_costs_more_than_forward_where_it_computes_more() -> None:
    """Norm and attention; the backward pass of softmax has no exponentials."""
    for kind in ("norm", "attention"):
        forward, backward = (
            op_cycles(GRID, _work(kind, op), "float16") for op in ("f", "backward")
        )
        assert backward.total_cycles > forward.total_cycles
    softmax = [tensors.softmax(GRID, (4096, 768), "float16", backward=b) for b in (False, True)]
    assert softmax[1].compute < softmax[0].compute


SHAPE = (2, 8, 8)
"""On 4 x 4 PEs: four tokens of two features on each."""

PASS = 16 + 8 / 4
PER_TOKEN = 4 * 16 + 16
"""A special function of each token."""


def _along(values: int) -> float:
    """All-reduce in a line of four PEs, and the set-ups of its two halves."""
    return collectives.all_reduce(SMALL.fabric, 4, values) + 2 * 16


def test_a_norm_written_out() -> None:
    """Two sums of each token along the row; backward, two of each feature down the column."""
    forward, backward = (tensors.norm(SMALL, SHAPE, "float16", backward=b) for b in (False, True))
    statistics = (16 + 8) + 5 * (16 + 4) + PER_TOKEN
    assert forward.total_cycles == 4 * PASS + _along(8) + statistics
    down = collectives.reduce(SMALL.fabric, 4, 4) + 16
    assert backward.total_cycles == 9 * PASS + _along(8) + down


def test_a_softmax_written_out() -> None:
    """40 tokens of 2 features: maxima and sums; exponentials and reciprocals; backward, one sum."""
    forward, backward = (
        tensors.softmax(SMALL, (20, 8, 8), "float16", backward=b) for b in (False, True)
    )
    passes, functions = 4 * (16 + 80 / 4), (80 + 40) * 16 + 2 * 16
    assert forward.total_cycles == passes + functions + 2 * _along(40)
    assert backward.total_cycles == passes + _along(40)


def test_a_loss_written_out() -> None:
    """A class of each token is copied and added; the sum goes along the row, then down."""
    line = collectives.reduce(SMALL.fabric, 4, 1) + 16
    expected = 4 * (16 + 1 / 4) + (16 + 4 / 4) + 2 * line
    assert tensors.loss(SMALL, SHAPE, "float16").total_cycles == expected


def test_what_only_moves_is_written_out() -> None:
    """A copy at once; a gather token by token, two features each."""
    assert tensors.copy(SMALL, SHAPE, "float16").total_cycles == 16 + 8 / 4
    assert tensors.gather(SMALL, SHAPE, "float16").total_cycles == 4 * (16 + 2 / 4)


def test_a_reduction_written_out() -> None:
    """One pass, then sums of four tokens, of two features, or of one number both ways."""
    down = {n: collectives.reduce(SMALL.fabric, 4, n) + 16 for n in (1, 2)}
    for results, sums in ((16, _along(4)), (8, down[2]), (1, _along(1) + down[1])):
        cycles = tensors.reduction(SMALL, SHAPE, "float16", results).total_cycles
        assert cycles == PASS + sums


def test_attention_of_a_head_on_one_pe_written_out() -> None:
    """8 x 8 scores of head size 4: two products of 32 axpys; four passes over 64 scores; their
    exponentials, and a reciprocal for each query. Nothing moves."""
    product, vector_pass = 32 * (2 + 1) + 16, 64 / 4 + 16
    softmax = 4 * vector_pass + (64 + 8) * 16 + 2 * 16
    forward, backward = (
        tensors.attention(SMALL, 16, 8, 8, 4, "float16", backward=b) for b in (False, True)
    )
    assert forward.total_cycles == product + softmax + product
    assert backward.total_cycles == 2 * product + softmax + 4 * vector_pass + 3 * product


def test_attention_of_a_head_on_two_pes_sums_along_their_row() -> None:
    """Four keys each: maxima and sums of 4 queries go both ways, and 4 x 6 values in 12 words."""
    pair = Grid.whole(FabricSpec(columns=2, rows=1))
    scores = resident_product(pair, 1, 4, 6, 8, "float16")
    softmax = 4 * (16 / 4 + 16) + (16 + 4) * 16 + 2 * 16
    along = collectives.all_reduce(pair.fabric, 2, 4) + 2 * 16
    values = 4 * 6 * (1 + 1) + 16 + collectives.reduce(pair.fabric, 2, 12) + 16
    cycles = tensors.attention(pair, 1, 4, 8, 6, "float16")
    assert cycles.total_cycles == scores.total_cycles + softmax + 2 * along + values


def test_attention_of_a_head_on_two_pes_moves_values_down_their_column() -> None:
    """Four queries each: in two steps, 4 keys of 3 values in 6 words, while 12 axpys run."""
    pair = Grid.whole(FabricSpec(columns=1, rows=2))
    scores = resident_product(pair, 1, 8, 6, 4, "float16")
    softmax = 4 * (16 / 4 + 16) + (16 + 4) * 16 + 2 * 16
    axpys, moved = Cycles(compute=12, setup=12), MovingOperand(2, 6)
    values = product_in_steps(pair.fabric, axpys, 2, [moved])
    cycles = tensors.attention(pair, 1, 8, 4, 6, "float16")
    assert cycles.total_cycles == scores.total_cycles + softmax + values.total_cycles


@given(heads=st.integers(1, 4000), tokens=st.integers(1, 600), size=st.integers(1, 128))
def test_attention_does_not_beat_the_peak(heads: int, tokens: int, size: int) -> None:
    """Two products of tokens x tokens x head size for each head, forward; five backward."""
    for backward, products in ((False, 2), (True, 5)):
        cycles = tensors.attention(GRID, heads, tokens, tokens, size, "float16", backward=backward)
        bound = products * heads * tokens * tokens * size / (GRID.num_pes * 4)
        assert cycles.total_cycles >= bound


def test_a_vector_instruction_is_setup_and_elements() -> None:
    """K0114: 4096 fp16 multiply-adds in 1040 cycles; silicon is slower (K0083)."""
    assert vector_cycles(WSE3_SIMULATOR, "fma", 4096, "float16").total_cycles == 1040
    assert vector_cycles(WSE3, "fma", 4096, "float16").total_cycles == pytest.approx(1419, abs=1)


def test_operands_in_one_bank_are_slower_on_silicon_alone() -> None:
    """K0089: 1.94 times the elements' time; the simulator does not model it."""
    for fabric, factor in ((WSE3, 1.94), (WSE3_SIMULATOR, 1.0)):
        apart, together = (
            vector_cycles(fabric, "add", 100, "float32", same_bank=same) for same in (False, True)
        )
        assert together.compute + together.memory == pytest.approx(factor * apart.compute)


def test_rates_depend_on_op_and_dtype() -> None:
    """16-bit elements go four at a time, fp32 singly; a serial sum waits for each (K0106)."""
    assert elements_per_cycle(WSE2, "fma", "bfloat16") == 4
    assert elements_per_cycle(WSE2, "fma", "float32") == 1
    assert elements_per_cycle(WSE2, "sum", "float16") == 0.5


def test_a_scalar_dot_product_waits_for_each_of_its_steps() -> None:
    """Two branches, two loads of three instructions, multiply and add, and the counter (K0110)."""
    assert scalar_dot_cycles(WSE3_SIMULATOR) == (3 + 6) + 2 * 3 + (2 + 2) + 2


def test_cycles_add_up() -> None:
    """Parts are exclusive; waiting for the fabric fills up to a bound and never shortens."""
    cycles = Cycles(compute=3, setup=2)
    assert (cycles + Cycles(memory=1)).total_cycles == 6
    assert (cycles * 2).total_cycles == 10
    assert cycles.at_least(9) == Cycles(compute=3, setup=2, fabric=4)
    assert cycles.at_least(1) == cycles
