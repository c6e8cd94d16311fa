"""Batch norm in two parts has the bits of torch's op."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from waferstream.compiler.results.state_cut import Rounding, native_batch_norm, update_running

LAYOUTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "contiguous": torch.Tensor.contiguous,
    "channels-last": lambda x: x.contiguous(memory_format=torch.channels_last),
    "transposed": lambda x: x.flatten(2).transpose(1, 2).contiguous().transpose(1, 2),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_batch_norm_in_two_parts_equals_the_op(dtype: torch.dtype, layout: str) -> None:
    """Output, saved statistics and running statistics, over several micro-batches."""
    generator = torch.Generator().manual_seed(0)
    channels = 33
    expected = [torch.zeros(channels), torch.ones(channels)]
    found = [torch.zeros(channels), torch.ones(channels)]
    weight, bias = torch.rand(2, channels, generator=generator)
    is_wide = layout == "transposed" and dtype == torch.float32
    roundings: tuple[Rounding, Rounding] = (
        ("once", "once")
        if layout == "transposed"
        else ("twice", "fused" if dtype == torch.float32 else "twice")
    )
    for momentum in (0.1, 0.3, 0.01, 1.0, 0.997, 0.2, 0.003):
        x = LAYOUTS[layout](torch.randn(4, channels, 3, 3, generator=generator).to(dtype) + 2)
        output = torch.ops.aten.native_batch_norm(x, weight, bias, *expected, True, momentum, 1e-5)
        *parts, mean, variance = native_batch_norm(x, weight, bias, 1e-5, torch.float32, is_wide)
        update_running(found[0], mean, momentum, roundings[0])
        update_running(found[1], variance, momentum, roundings[1])
        assert all(map(torch.equal, parts, output))
        assert all(map(torch.equal, found, expected))
