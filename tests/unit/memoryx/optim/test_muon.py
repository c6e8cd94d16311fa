"""Muon is torch's for matrices, bit for bit; other shapes are treated as matrices."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch

from memoryx.optim.rule import Parameter, rule_named
from tests.support.plain_torch.optimizer_rules import assert_equals_torch, init_state

MUON = {"lr": 0.02, "weight_decay": 0.01, "momentum": 0.95, "nesterov": True, "ns_steps": 5}
MATRICES = [(3, 5), (64, 16), (1, 9), (33, 65), (20, 20)]


@pytest.mark.parametrize(
    "hyper",
    [MUON, {**MUON, "nesterov": False, "weight_decay": 0.0}, {**MUON, "ns_steps": 3}],
)
def test_update_of_matrices_equals_torch_bitwise(hyper: dict[str, Any]) -> None:
    """Five steps on views at odd offsets, tall, wide and square."""
    assert_equals_torch("Muon", partial(torch.optim.Muon, **hyper), hyper, MATRICES)


def updated(shape: tuple[int, ...], gradient: torch.Tensor) -> torch.Tensor:
    rule, master = rule_named("Muon"), torch.ones(shape)
    state = init_state(rule, shape, MUON)
    rule.update([Parameter(master, gradient.reshape(shape), state)], MUON, 1)
    return master


@pytest.mark.parametrize(("shape", "matrix"), [((4, 2, 3), (4, 6)), ((7,), (1, 7)), ((), (1, 1))])
def test_update_treats_other_shapes_as_matrices(shape: Any, matrix: Any) -> None:
    """The first dimension gives the rows; a vector and a scalar have one row."""
    gradient = torch.randn(matrix)
    assert torch.equal(updated(shape, gradient).reshape(matrix), updated(matrix, gradient))


def test_update_makes_singular_values_nearly_one() -> None:
    """A gradient of any scale changes the parameter by singular values of about lr."""
    change = (
        torch.ones(8, 8) * (1 - 0.02 * 0.01) - updated((8, 8), 1e3 * torch.randn(8, 8))
    ) / 0.02
    values = torch.linalg.svdvals(change)
    assert values.max() < 1.3
    assert values[:4].min() > 0.6


def test_update_with_a_zero_gradient_only_decays() -> None:
    """The norm is bounded from below, so that nothing is divided by zero."""
    torch.testing.assert_close(
        updated((3, 4), torch.zeros(3, 4)), torch.full((3, 4), 1 - 0.02 * 0.01)
    )
