"""Batch norm in two parts has the bits of torch's op."""

from __future__ import annotations

import pytest
import torch

from wsc.compiler.batch_norm import native_batch_norm, update_mean, update_variance


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_batch_norm_in_two_parts_equals_the_op(
    dtype: torch.dtype, layout: torch.memory_format
) -> None:
    """Output, saved statistics and running statistics, over several micro-batches."""
    generator = torch.Generator().manual_seed(0)
    expected = [torch.zeros(5), torch.ones(5)]
    found = [torch.zeros(5), torch.ones(5)]
    weight, bias = torch.rand(2, 5, generator=generator)
    for momentum in (0.1, 0.3, 0.01, 1.0):
        x = torch.randn(4, 5, 3, 3, generator=generator).to(dtype).contiguous(memory_format=layout)
        output = torch.ops.aten.native_batch_norm(x, weight, bias, *expected, True, momentum, 1e-5)
        *parts, mean, variance = native_batch_norm(x, weight, bias, 1e-5, torch.float32)
        update_mean(found[0], mean, momentum)
        update_variance(found[1], variance, momentum, dtype == torch.float32)
        assert all(map(torch.equal, parts, output))
        assert all(map(torch.equal, found, expected))
