"""How far rows may be from those of the model alone."""

from __future__ import annotations

import math

import pytest
import torch

from appliance.serving.proof import are_close


@pytest.mark.parametrize(
    ("dtype", "num_far", "is_close"),
    [
        (torch.float32, 0, True),
        (torch.float32, 1, False),
        (torch.bfloat16, 2, True),
        (torch.bfloat16, 3, False),
    ],
)
@pytest.mark.parametrize("score", [0.5, math.nan])
def test_few_rows_may_be_far_in_bfloat16(
    dtype: torch.dtype, num_far: int, is_close: bool, score: float
) -> None:
    """Of 20 rows two, as of experts between which the router wavers."""
    expected = torch.ones(20, 3, dtype=dtype)
    found = expected.clone()
    found[:num_far, 1] = score
    assert are_close(found, expected) is is_close
