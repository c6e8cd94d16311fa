"""Shape rules agree with the kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch._subclasses import FakeTensorMode

from tests.support.errors import raises
from waferstream.compiler.capture.shape_rules import own_shape_rules
from waferstream.core.errors import ApplianceCompilationError

Norm = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor], Any]

ENDS = torch.tensor([8, 8, 16], dtype=torch.int32)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize(
    ("left", "right"),
    [
        ((16, 8), (3, 8, 24)),
        ((8, 16), (16, 24)),
        ((3, 24, 8), (8, 16)),
        ((3, 8, 16), (3, 16, 24)),
    ],
)
def test_rule_of_a_grouped_product_agrees_with_the_kernel(
    left: tuple[int, ...], right: tuple[int, ...], dtype: torch.dtype
) -> None:
    """Shape, strides and type are those of the result on values."""
    a, b = torch.randn(left).to(dtype), torch.randn(right).to(dtype)
    ends = None if len(left) == len(right) == 3 else ENDS
    expected = torch._grouped_mm(a, b, offs=ends)
    fake_mode = FakeTensorMode(allow_non_fake_inputs=True)
    with own_shape_rules(), fake_mode:
        found = torch._grouped_mm(a, b, offs=ends)
    assert (found.shape, found.stride(), found.dtype) == (
        expected.shape,
        expected.stride(),
        expected.dtype,
    )


def test_result_of_a_grouped_product_has_padded_rows() -> None:
    """Five columns of fp32 take the room of eight."""
    left, right = torch.randn(16, 8), torch.randn(3, 5, 8).transpose(1, 2)
    expected = torch._grouped_mm(left, right, offs=ENDS)
    fake_mode = FakeTensorMode(allow_non_fake_inputs=True)
    with own_shape_rules(), fake_mode:
        found = torch._grouped_mm(left, right, offs=ENDS)
    assert found.stride() == expected.stride() == (8, 1)


def test_unaligned_rows_of_a_grouped_product_are_refused() -> None:
    """The kernel would refuse them on values."""
    left, right = torch.randn(16, 8), torch.randn(3, 8, 5)
    with pytest.raises(RuntimeError, match="16 bytes"):
        torch._grouped_mm(left, right, offs=ENDS)
    with (
        own_shape_rules(),
        FakeTensorMode(allow_non_fake_inputs=True),
        raises(ApplianceCompilationError, "grouped-product-unaligned"),
    ):
        torch._grouped_mm(left, right, offs=ENDS)


aten = torch.ops.aten
BOTH = [True, True, True]
NORMS: dict[str, Norm] = {
    "batch_norm": lambda x, g, w, b: aten.native_batch_norm(x, w, b, None, None, True, 0.1, 1e-5),
    "batch_norm_backward": lambda x, g, w, b: aten.native_batch_norm_backward(
        g, x, w, None, None, b, w, True, 1e-5, BOTH
    ),
    "layer_norm_backward": lambda x, g, w, b: aten.native_layer_norm_backward(
        g, x, [4], *torch.zeros(2, 2, 4, 3, 1), w, b, BOTH
    ),
    "group_norm_backward": lambda x, g, w, b: aten.native_group_norm_backward(
        g, x, *torch.zeros(2, 2, 2), w, 2, 4, 12, 2, BOTH
    ),
}
LAYOUTS = [(0, 1, 2, 3), (0, 2, 3, 1), (3, 1, 2, 0), (1, 0, 2, 3)]


def in_layout(order: tuple[int, ...]) -> torch.Tensor:
    """Return a tensor of shape (2, 4, 3, 4) whose memory has its dimensions in an order."""
    sizes = [(2, 4, 3, 4)[dimension] for dimension in order]
    return torch.randn(sizes).permute([order.index(dimension) for dimension in range(4)])


@pytest.mark.parametrize("name", NORMS)
@pytest.mark.parametrize("of_gradient", LAYOUTS)
@pytest.mark.parametrize("of_input", LAYOUTS)
def test_rule_of_a_norm_agrees_with_the_kernel_about_strides(
    of_input: tuple[int, ...], of_gradient: tuple[int, ...], name: str
) -> None:
    """Whatever the layouts of input and gradient are."""
    x, gradient = in_layout(of_input), in_layout(of_gradient)
    weight, bias = torch.ones(4), torch.zeros(4)
    expected = NORMS[name](x, gradient, weight, bias)
    fake_mode = FakeTensorMode(allow_non_fake_inputs=True)
    with own_shape_rules(), fake_mode:
        fakes = [fake_mode.from_tensor(tensor) for tensor in (x, gradient, weight, bias)]
        found = NORMS[name](*fakes)
    assert [t.stride() for t in found] == [t.stride() for t in expected]


GRADIENTS: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "mse_loss": lambda x, g: aten.mse_loss_backward(g, x, torch.zeros_like(x), 0),
    "smooth_l1_loss": lambda x, g: aten.smooth_l1_loss_backward(g, x, torch.zeros_like(x), 0, 1.0),
    "huber_loss": lambda x, g: aten.huber_loss_backward(g, x, torch.zeros_like(x), 0, 1.0),
    "softplus": lambda x, g: aten.softplus_backward(g, x, 1, 20),
    "elu": lambda x, g: aten.elu_backward(g, 1, 1, 1, False, x),
    "hardswish": lambda x, g: aten.hardswish_backward(g, x),
    "hardsigmoid": lambda x, g: aten.hardsigmoid_backward(g, x),
    "hardtanh": lambda x, g: aten.hardtanh_backward(g, x, -1, 1),
}


@pytest.mark.parametrize("name", GRADIENTS)
@pytest.mark.parametrize("of_gradient", LAYOUTS)
@pytest.mark.parametrize("of_input", LAYOUTS)
def test_rule_of_a_gradient_agrees_with_the_kernel_about_strides(
    of_input: tuple[int, ...], of_gradient: tuple[int, ...], name: str
) -> None:
    """Of losses and activations, whatever the layouts of input and gradient are."""
    x, gradient = in_layout(of_input), in_layout(of_gradient)
    fake_mode = FakeTensorMode(allow_non_fake_inputs=True)
    with own_shape_rules(), fake_mode:
        found = GRADIENTS[name](fake_mode.from_tensor(x), fake_mode.from_tensor(gradient))
    assert found.stride() == GRADIENTS[name](x, gradient).stride()
