"""Cost functions of op kinds."""

from __future__ import annotations

from dataclasses import astuple

import pytest

from tests.support.errors import raises
from waferstream.compiler.ops import KIND_OF
from waferstream.core.errors import ApplianceCompilationError
from waferstream.core.program.segment import OpWork
from waferstream.machine.hardware.fabric import WSE2, WSE3, WSE3_SIMULATOR
from waferstream.machine.kernels import Cycles, Grid, spatial, tensors
from waferstream.machine.kernels.op_costs import COST_FUNCTIONS, cost_function_of, op_cycles
from waferstream.machine.kernels.resident import (
    weight_gradient,
)
from waferstream.machine.kernels.streaming import weight_streaming

SHAPES = {
    "matmul": (1, 4096, 768, 3072),
    "convolution": (4096, 288, 64),
    "attention": (96, 256, 256, 64),
}


GRID = Grid.whole(WSE2)


def _work(kind: str, op: str = "op", *, streams: bool = False) -> OpWork:
    shape = SHAPES.get(kind, (8, 512, 768))
    if kind == "convolution":
        op = "convolution_backward" if op.endswith("backward") else "convolution"
    return OpWork(op=op, kind=kind, flops=8 * 512, shape=shape, streams=streams)


def test_every_op_kind_has_a_cost_function() -> None:
    """No captured op is without a cost, and no cost function is without ops."""
    assert set(COST_FUNCTIONS) == set(KIND_OF.values())


@pytest.mark.parametrize("kind", sorted(set(KIND_OF.values()) - {"view"}))
@pytest.mark.parametrize("op", ["op", "op_backward", "gelu", "nll_loss_forward"])
def test_op_cycles_are_positive_on_every_wafer(kind: str, op: str) -> None:
    """Costs are finite and positive, and no cause is negative."""
    for fabric in (WSE2, WSE3, WSE3_SIMULATOR):
        cycles = op_cycles(Grid.whole(fabric), _work(kind, op), "bfloat16")
        assert 0 < cycles.total_cycles < 1e9
        assert min(astuple(cycles)) >= 0


def test_op_cycles_of_a_view_are_zero() -> None:
    """A view moves nothing."""
    assert op_cycles(GRID, _work("view"), "float16") == Cycles()


@pytest.mark.parametrize("kind", sorted(set(KIND_OF.values())))
@pytest.mark.parametrize("op", ["op", "op_backward", "gelu", "nll_loss_forward"])
@pytest.mark.parametrize("hidden_pes", [750, 107])
def test_cost_function_counts_the_fullest_pe(kind: str, op: str, hidden_pes: int) -> None:
    """Rounding tokens up to full tiles does not change the cost, and makes similar ops equal."""
    grid, work = Grid(WSE2, hidden_pes), _work(kind, op, streams=True)
    form = cost_function_of(work)
    assert form.on(grid).cycles(grid, "float16") == op_cycles(grid, work, "float16")
    if kind not in {"matmul", "convolution", "attention", "reduction", "view"}:
        longer = cost_function_of(work._replace(shape=(8, 513, 768)))
        assert longer != form
        assert longer.on(grid) == form.on(grid)


def test_op_cycles_of_a_loss_differ_from_a_softmax() -> None:
    """The compiler files a loss under softmax, but it picks one class per token."""
    work = _work("softmax", "nll_loss_forward")
    assert op_cycles(GRID, work, "float16") == tensors.loss(GRID, work.shape, "float16")
    assert op_cycles(GRID, work, "float16") != op_cycles(GRID, _work("softmax"), "float16")


def test_op_cycles_of_transcendental_ops() -> None:
    """An addition is one vector instruction; a gelu also has a function of each element."""
    add, gelu = (op_cycles(GRID, _work("elementwise", op), "float16") for op in ("add", "gelu"))
    assert add == tensors.elementwise(GRID, (8, 512, 768), "float16")
    assert gelu == tensors.transcendental(GRID, (8, 512, 768), "float16")


def test_op_cycles_refuse_an_unknown_kind() -> None:
    """The error names the op and the known kinds."""
    with raises(ApplianceCompilationError, "op-kind-without-cost") as refusal:
        op_cycles(GRID, _work("sorcery", "abracadabra"), "float16")
    assert "abracadabra" in str(refusal.value)


def test_op_cycles_distinguish_streamed_products() -> None:
    """With a streamed weight, tokens are rows; otherwise one product is a weight gradient."""
    streamed = op_cycles(GRID, _work("matmul", streams=True), "float16")
    assert streamed == weight_streaming(GRID, 4096, 768, 3072, "float16")
    resident = op_cycles(GRID, _work("matmul"), "float16")
    assert resident == weight_gradient(GRID, 768, 4096, 3072, "float16")


def test_op_cycles_use_density_for_products_with_weights_only() -> None:
    """Sparse weights make their products and gradients faster and change nothing else."""
    gradient = _work("matmul")
    resident = gradient._replace(shape=(64, 4096, 768, 3072))
    for work in (resident._replace(streams=True), gradient):
        sparse, dense = (op_cycles(GRID, work, "float16", d).total_cycles for d in (0.1, 1.0))
        assert sparse < dense
    assert op_cycles(GRID, resident, "float16", 0.1) == op_cycles(GRID, resident, "float16", 1.0)


def test_op_cycles_backward_exceed_forward() -> None:
    """Holds for norm and attention; the backward pass of softmax has no exponentials."""
    for kind in ("norm", "attention"):
        forward, backward = (
            op_cycles(GRID, _work(kind, op), "float16") for op in ("f", "backward")
        )
        assert backward.total_cycles > forward.total_cycles
    softmax = [tensors.softmax(GRID, (4096, 768), "float16", backward=b) for b in (False, True)]
    assert softmax[1].compute < softmax[0].compute


def test_cost_function_of_a_convolution_spreads_positions() -> None:
    """Positions are tokens; weights that are not streamed cost a resident product."""
    work = _work("convolution", streams=True)
    longer = work._replace(shape=(4097, 288, 64))
    assert cost_function_of(work) != cost_function_of(longer)
    assert cost_function_of(work).on(GRID) == cost_function_of(longer).on(GRID)
    positions, patch, channels = work.shape
    expected = spatial.convolution(GRID, positions, patch, channels, "float16", op="convolution")
    assert op_cycles(GRID, work, "float16") == expected
    resident = op_cycles(GRID, work._replace(streams=False), "float16")
    assert resident == spatial.resident_convolution(
        GRID, positions, patch, channels, "float16", op="convolution"
    )


def test_cost_of_a_grouped_product_streams_every_group() -> None:
    """Each group of tokens has its own weights."""
    work = OpWork("_grouped_mm", "matmul", 2 * 4 * 512 * 64 * 96, (4, 512, 64, 96), streams=True)
    one = weight_streaming(GRID, 512, 64, 96, "float16")
    assert op_cycles(GRID, work, "float16") == one * 4


def test_cost_of_a_batch_norm_sums_over_positions() -> None:
    """Layer norm sums over features instead."""
    work = _work("norm", "native_batch_norm")
    assert op_cycles(GRID, work, "float16") == spatial.batch_norm(GRID, work.shape, "float16")
    assert op_cycles(GRID, work, "float16") != op_cycles(GRID, _work("norm"), "float16")
