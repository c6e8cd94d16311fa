"""Cycles of the engine's kernels: closed forms against the simulator of the fabric."""

from __future__ import annotations

from statistics import mean

import pytest

from csnode.engine.calls import KernelCall, calls_of
from csnode.engine.closed_forms import (
    counted_cycles,
    engine_cycles,
    kernel_cycles,
    region_grid,
)
from csnode.engine.spec import KERNEL_NAMES, KernelName
from waferstream.core.program.segment import OpWork
from waferstream.machine.kernels.op_costs import op_cycles

BOUND, MEAN_BOUND = 0.05, 0.02
CASES: dict[KernelName, list[tuple[int, ...]]] = {
    "streamed_product": [(16, 16, 16), (8, 32, 12), (7, 11, 6)],
    "token_product": [(16, 16, 16), (8, 16, 24), (11, 7, 6)],
    "resident_product": [(8, 4, 8), (16, 8, 12), (7, 11, 6)],
    "feature_sum": [(2, 16, 16), (7, 11), (3, 32)],
    "token_sum": [(16, 16), (7, 11), (32, 1)],
    "softmax": [(16, 16), (7, 11), (3, 32)],
    "layer_norm": [(16, 16), (32, 24), (7, 11), (3, 32)],
    "rms_norm": [(16, 16), (32, 24), (7, 11), (3, 32)],
}


def errors(call: KernelCall) -> list[float]:
    """Errors of the closed form, relative to the simulator, on regions that divide nothing."""
    return [
        kernel_cycles(region_grid(*size), call).total_cycles / counted_cycles(*size, call) - 1
        for size in ((3, 5), (2, 8))
        if call.shape[-1] != 6 or size != (2, 8)  # less than one output for each PE
    ]


@pytest.mark.parametrize("name", KERNEL_NAMES)
def test_closed_form_is_within_five_percent_of_the_simulator(name: KernelName) -> None:
    dtypes = ["float32", "bfloat16"] if name.endswith("_product") else ["float32"]
    found = [
        abs(error)
        for shape in CASES[name]
        for dtype in dtypes
        for error in errors(KernelCall(name, shape, dtype))
    ]
    assert max(found) <= BOUND
    assert mean(found) <= MEAN_BOUND


@pytest.mark.parametrize("density", [0.1, pytest.param(0.5, marks=pytest.mark.nightly)])
def test_zeros_of_streamed_weights_cost_nothing_with_an_index(density: float) -> None:
    """Weights of 16 bits have one; all fp32 weights enter."""
    whole = KernelCall("streamed_product", (16, 64, 48), "bfloat16")
    sparse = whole._replace(density=density)
    assert counted_cycles(2, 8, sparse) < 0.85 * counted_cycles(2, 8, whole)
    assert max(map(abs, errors(sparse))) <= BOUND
    fp32 = KernelCall("streamed_product", (8, 16, 12))
    assert counted_cycles(2, 8, fp32) == counted_cycles(2, 8, fp32._replace(density=density))


def test_weights_enter_without_a_set_up_for_every_output() -> None:
    """The ring hides what AXPYs take, so that few weights of a PE cost no more than its set-up."""
    call = KernelCall("streamed_product", (2, 56, 24))
    closed_form = kernel_cycles(region_grid(2, 8), call).total_cycles
    assert closed_form == pytest.approx(counted_cycles(2, 8, call), rel=0.02)


def test_repeated_kernels_cost_as_often() -> None:
    call = KernelCall("softmax", (8, 8))
    grid, thrice = region_grid(2, 2), call._replace(times=3)
    assert kernel_cycles(grid, thrice).total_cycles == kernel_cycles(grid, call).total_cycles * 3
    assert counted_cycles(2, 2, thrice) == counted_cycles(2, 2, call) * 3


def test_op_of_the_engine_costs_its_kernels_and_what_lies_between() -> None:
    grid = region_grid(4, 4)
    work = OpWork("_scaled_dot_product_flash_attention_for_cpu", "attention", 1, (4, 8, 8, 4))
    kernels = sum(kernel_cycles(grid, call).total_cycles for call in calls_of(work, "float32"))
    assert engine_cycles(grid, work, "float32").total_cycles > kernels


def test_op_that_torch_computes_has_its_usual_cost() -> None:
    grid, work = region_grid(4, 4), OpWork("gelu", "elementwise", 64, (8, 8))
    assert engine_cycles(grid, work, "float16") == op_cycles(grid, work, "float16")
