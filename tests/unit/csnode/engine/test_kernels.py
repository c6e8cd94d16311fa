"""Aten ops on the array: close to torch's, with its types and strides."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from csnode.engine.array import WaferArray
from csnode.engine.kernels import KERNELS, PRODUCTS
from tests.support.errors import raises
from waferstream.core.errors import ApplianceCompilationError

aten: Any = torch.ops.aten
ARRAY = WaferArray(3, 4)


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


X, Y, W, B = normal(7, 10), normal(7, 10, seed=3), normal(10, 6, seed=1), normal(6, seed=2)
Q, K, V, G = (normal(2, 5, 3, 4, seed=n).transpose(1, 2) for n in range(4))
_, MEAN, FACTOR = aten.native_layer_norm(X, [10], None, None, 1e-5)
_, ROOT = aten._fused_rms_norm(X, [10], None, None)
FLASH = aten._scaled_dot_product_flash_attention_for_cpu
OUT, SUMS = FLASH(Q, K, V, 0.0, True)
SCALE = normal(10, seed=5)


def rms_gradients(
    dy: torch.Tensor,
    x: torch.Tensor,
    shape: list[int],
    _: torch.Tensor,
    scale: torch.Tensor,
    *__: Any,
) -> tuple[torch.Tensor, ...]:
    """Return the gradients of an RMS norm by autograd; torch has no CPU kernel for them."""
    leaves = [x.clone().requires_grad_(), scale.clone().requires_grad_()]
    y = torch.nn.functional.rms_norm(leaves[0], shape, leaves[1], torch.finfo(x.dtype).eps)
    return torch.autograd.grad(y, leaves, dy)


CASES: list[tuple[str, Callable[..., Any], tuple[Any, ...], dict[str, Any]]] = [
    ("mm", aten.mm, (X, W), {}),
    ("addmm", aten.addmm, (B, X, W), {"beta": 2, "alpha": 0.5}),
    ("bmm", aten.bmm, (X[None], W[None]), {}),
    ("sum", aten.sum.dim_IntList, (Q, [0, 1], True), {}),
    ("sum", aten.sum.dim_IntList, (Q, [1, 3]), {}),
    ("sum", aten.sum.default, (X,), {}),
    ("mean", aten.mean.dim, (X, [-1], True), {}),
    ("_softmax", aten._softmax, (X, 0, False), {}),
    ("_log_softmax", aten._log_softmax, (X, 1, False), {}),
    ("_softmax_backward_data", aten._softmax_backward_data, (Y, X, -1, torch.float32), {}),
    ("_log_softmax_backward_data", aten._log_softmax_backward_data, (Y, X, 1, torch.float32), {}),
    ("native_layer_norm", aten.native_layer_norm, (X, [10], SCALE, SCALE, 1e-5), {}),
    (
        "native_layer_norm_backward",
        aten.native_layer_norm_backward,
        (Y, X, [10], MEAN, FACTOR, SCALE, SCALE, [True] * 3),
        {},
    ),
    ("_fused_rms_norm", aten._fused_rms_norm, (X, [10], SCALE, 1e-5), {}),
    (
        "_fused_rms_norm_backward",
        rms_gradients,
        (Y, X, [10], ROOT, SCALE, [True] * 2),
        {},
    ),
    (FLASH.__name__, FLASH, (Q, K, V, 0.0, True), {"scale": 0.3}),
    (
        FLASH.__name__ + "_backward",
        aten._scaled_dot_product_flash_attention_for_cpu_backward,
        (G, Q, K, V, OUT, SUMS, 0.0, True),
        {},
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case[0])
def test_kernel_is_close_to_that_of_torch(case: Any) -> None:
    name, op, arguments, options = case
    for streams in [(False, False), (True, False), (False, True)] if name in PRODUCTS else [None]:
        given = (ARRAY, *arguments) if streams is None else (ARRAY, streams, *arguments)
        ours, torchs = KERNELS[name](*given, **options), op(*arguments, **options)
        pairs = zip(ours, torchs, strict=True) if isinstance(torchs, tuple) else [(ours, torchs)]
        for left, right in pairs:
            torch.testing.assert_close(left, right, rtol=1e-4, atol=1e-5)
            assert left.stride() == right.stride()


def test_every_kernel_has_a_case() -> None:
    assert {case[0] for case in CASES} == set(KERNELS)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_result_of_halves_is_rounded_once(dtype: torch.dtype) -> None:
    x, w = X.to(dtype), W.to(dtype)
    product = KERNELS["mm"](ARRAY, (False, True), x, w)
    assert torch.equal(product, ARRAY.streamed_product(x, w).to(dtype))


def test_integers_are_summed_by_torch() -> None:
    assert KERNELS["sum"](ARRAY, torch.arange(5)).item() == 10


def test_type_of_64_bits_is_refused() -> None:
    with raises(ApplianceCompilationError, "engine-operand-type"):
        KERNELS["mm"](ARRAY, (False, True), X.double(), W.double())


def test_attention_with_dropout_is_refused() -> None:
    with raises(ApplianceCompilationError, "engine-attention-dropout"):
        KERNELS[FLASH.__name__](ARRAY, Q, K, V, 0.5)
