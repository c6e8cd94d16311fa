"""Kernels of the array: the order of a literal loop over PEs, and the bits of the simulator."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

from csnode.engine.array import WaferArray, ring_positions
from csnode.engine.fabric import FabricArray, Run
from csnode.fabric.defects import random_defects
from waferstream.machine.hardware.fabric import WSE2

DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
Kernel = Callable[[WaferArray], tuple[torch.Tensor, ...]]


def normal(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


X, W = normal(7, 11), normal(11, 6, seed=1)
KERNELS: dict[str, Kernel] = {
    "streamed_product": lambda array: (array.streamed_product(X, W),),
    "streamed_product_fp16": lambda array: (array.streamed_product(X.half(), W.half()),),
    "streamed_product_bf16": lambda array: (array.streamed_product(X.bfloat16(), W.bfloat16()),),
    "token_product": lambda array: (array.token_product(X.T, normal(7, 6)),),
    "token_product_bf16": lambda array: (array.token_product(X.T.half(), normal(7, 6).half()),),
    "resident_product_bf16": lambda array: (array.resident_product(X.bfloat16(), W.bfloat16()),),
    "resident_product": lambda array: (array.resident_product(X[None], W[None]),),
    "feature_sum": lambda array: (array.feature_sum(X),),
    "feature_sums": lambda array: (array.feature_sum(torch.stack([X, X * X])),),
    "token_sum": lambda array: (array.token_sum(X),),
    "softmax": lambda array: (array.softmax(X),),
    "log_softmax": lambda array: (array.log_softmax(X),),
    "layer_norm": lambda array: array.layer_norm(X, 1e-5),
    "rms_norm": lambda array: array.rms_norm(X, 1e-5),
}


@pytest.mark.parametrize("size", [(3, 4), (4, 1), (8, 12)])
@pytest.mark.parametrize("name", KERNELS)
def test_both_arrays_give_the_same_bits(name: str, size: tuple[int, int]) -> None:
    """7 tokens, 11 and 6 features divide evenly among none of these grids."""
    runs: list[Run] = []
    fabric = FabricArray(*size, on_run=runs.append)
    for ours, simulated in zip(
        KERNELS[name](WaferArray(*size)), KERNELS[name](fabric), strict=True
    ):
        assert torch.equal(ours, simulated)
    assert runs
    assert all(run.cycles > 0 for run in runs)


@pytest.mark.parametrize("name", ["streamed_product", "token_product", "layer_norm"])
def test_dead_pes_change_no_bit(name: str) -> None:
    broken = FabricArray(3, 4, random_defects(WSE2, seed=3, pe_yield=0.99, link_yield=1.0))
    for ours, simulated in zip(KERNELS[name](WaferArray(3, 4)), KERNELS[name](broken), strict=True):
        assert torch.equal(ours, simulated)


def multiply_add(a: float, b: float, c: np.float32) -> np.float32:
    """Return ``a * b + c``, rounded to fp32 as a PE does."""
    return np.float32(np.float64(a) * np.float64(b) + np.float64(c))


def literal_product(x: torch.Tensor, w: torch.Tensor, columns: int) -> torch.Tensor:
    """Multiply as the PEs of a row do, one after the other: a loop over PEs, tokens and outputs."""
    (tokens, inputs), outputs = x.shape, w.shape[1]
    height, width = -(-inputs // columns), -(-outputs // columns)
    place_of = {int(column): place for place, column in enumerate(ring_positions(columns))}
    result = torch.zeros(tokens, outputs)
    for token in range(tokens):
        for output in range(outputs):
            partial = []
            for column in range(columns):
                total = np.float32(0)
                for k in range(column * height, min((column + 1) * height, inputs)):
                    total = multiply_add(float(x[token, k]), float(w[k, output]), total)
                partial.append(total)
            keeper = place_of[output // width]
            around = [(keeper + 1 + step) % columns for step in range(columns)]
            sums = [partial[int(ring_positions(columns)[place])] for place in around]
            total = sums[0]
            for each in sums[1:]:
                total = np.float32(total + each)
            result[token, output] = float(total)
    return result


@DTYPES
@pytest.mark.parametrize("columns", [1, 4, 5, 16])
def test_streamed_product_is_that_of_a_loop_over_pes(dtype: torch.dtype, columns: int) -> None:
    x, w = X.to(dtype), W.to(dtype)
    assert torch.equal(
        WaferArray(2, columns).streamed_product(x, w), literal_product(x, w, columns)
    )


def test_outputs_in_blocks_have_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = WaferArray(2, 4).streamed_product(X, W)
    monkeypatch.setattr("csnode.engine.array._BLOCK_ELEMENTS", 16)
    assert torch.equal(WaferArray(2, 4).streamed_product(X, W), whole)


def test_order_of_sums_depends_on_the_columns() -> None:
    """The sums are close to torch's, and those of two regions differ in some bits."""
    x, w = normal(64, 256), normal(256, 64, seed=1)
    first, second = (WaferArray(4, columns).streamed_product(x, w) for columns in (8, 32))
    assert not torch.equal(first, second)
    torch.testing.assert_close(first, second, rtol=1e-5, atol=1e-4)
    torch.testing.assert_close(first, x @ w, rtol=1e-5, atol=1e-4)
