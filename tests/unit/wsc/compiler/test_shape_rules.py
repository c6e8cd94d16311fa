"""Shape rules agree with the kernels."""

from __future__ import annotations

import pytest
import torch
from torch._subclasses import FakeTensorMode

from tests.support.errors import raises
from wsc.compiler.shape_rules import own_shape_rules
from wsc.core.errors import ApplianceCompilationError

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
