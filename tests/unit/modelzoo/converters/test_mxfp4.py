"""Weights in MXFP4 have the values that transformers gives them."""

from __future__ import annotations

import pytest
import torch

from modelzoo.converters.mxfp4 import unpacked
from tests.support.errors import raises
from waferstream.core.errors import CheckpointError


def test_values_are_those_of_transformers() -> None:
    from transformers.integrations.mxfp4 import convert_moe_packed_tensors

    torch.manual_seed(0)
    blocks = torch.randint(256, (2, 6, 3, 16), dtype=torch.uint8)
    scales = torch.randint(100, 140, (2, 6, 3), dtype=torch.uint8)
    other = torch.ones(1)
    found = unpacked({"up_blocks": blocks, "up_scales": scales, "other": other})
    assert found.keys() == {"up", "other"}
    assert found["other"] is other
    assert torch.equal(found["up"], convert_moe_packed_tensors(blocks, scales))


@pytest.mark.parametrize(("shape", "dtype"), [((2, 6, 2), torch.uint8), ((2, 6, 3), torch.float32)])
def test_scales_that_do_not_fit_are_refused(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    blocks = torch.zeros(2, 6, 3, 16, dtype=torch.uint8)
    with raises(CheckpointError, "mxfp4-malformed"):
        unpacked({"up_blocks": blocks, "up_scales": torch.zeros(shape, dtype=dtype)})
