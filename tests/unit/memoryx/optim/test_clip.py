"""Clipping in the steps of several servers is torch's clipping, bit for bit."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from memoryx.optim.clip import (
    clip_coefficient,
    clip_value_,
    gradient_norms,
    total_norm,
)

SHAPES = [(1,), (7,), (3, 5), (100_003,), ()]


def parameters_with(gradients: Sequence[torch.Tensor]) -> list[torch.nn.Parameter]:
    """Return parameters of zeros that have these gradients."""
    parameters = [torch.nn.Parameter(torch.zeros(gradient.shape)) for gradient in gradients]
    for parameter, gradient in zip(parameters, gradients, strict=True):
        parameter.grad = gradient.clone()
    return parameters


def gradients_of(parameters: Sequence[torch.nn.Parameter]) -> list[torch.Tensor]:
    """Return the gradients of parameters, all of which have one."""
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    assert len(gradients) == len(parameters)
    return gradients


@given(st.floats(1e-3, 1e3), st.integers(0, 2**32))
def test_clip_by_norm_equals_torch(max_norm: Any, seed: Any) -> None:
    """Norm, and every scaled gradient, equal torch's, whether or not the norm exceeds."""
    generator = torch.Generator().manual_seed(seed)
    gradients = [torch.randn(shape, generator=generator) for shape in SHAPES]
    parameters = parameters_with(gradients)
    expected = torch.nn.utils.clip_grad_norm_(parameters, max_norm)
    here, there = gradient_norms(gradients[:2]), gradient_norms(gradients[2:])
    total = total_norm(here + there)
    coefficient = clip_coefficient(total, max_norm)
    assert total == expected.item()
    assert all(
        torch.equal(ours * coefficient, theirs)
        for ours, theirs in zip(gradients, gradients_of(parameters), strict=True)
    )


@pytest.mark.parametrize("total", [math.nan, math.inf, 0.0])
def test_clip_by_norm_equals_torch_at_extreme_norms(total: Any) -> None:
    """NaN stays NaN, infinity gives 0, zero gives 1."""
    expected = torch.clamp(1.0 / (torch.tensor(total) + 1e-6), max=1.0).item()
    found = clip_coefficient(total, 1.0)
    assert found == expected or (math.isnan(found) and math.isnan(expected))


def test_clip_value_equals_torch() -> None:
    """Every element is clamped; NaN is left for the NaN check."""
    gradients = [torch.randn(shape) for shape in SHAPES] + [torch.tensor([math.nan, 3.0])]
    parameters = parameters_with(gradients)
    torch.nn.utils.clip_grad_value_(parameters, 0.5)
    clip_value_(gradients, 0.5)
    for ours, theirs in zip(gradients, gradients_of(parameters), strict=True):
        assert torch.equal(ours.nan_to_num(9.0), theirs.nan_to_num(9.0))
