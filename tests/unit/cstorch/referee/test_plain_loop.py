"""A plain loop on whole batches: its draws, its batch norm, random rounding, its optimizers."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional

from cstorch.referee.draws import BatchDraws, norms_of_micro_batches, row_counts
from cstorch.referee.rounds import RandomRounding
from tests.support.plain_torch.keyed_draws import KeyedDraws
from waferstream.core.program.micro_batches import Cut

UNEVEN = Cut(7, 3)
"""Micro-batches of three, two and two samples."""


def test_rows_follow_the_samples() -> None:
    assert row_counts(UNEVEN, 7) == [3, 2, 2]
    assert row_counts(UNEVEN, 14) == [6, 4, 4]
    assert row_counts(UNEVEN, 8) is None
    assert row_counts(UNEVEN, 0) is None


@pytest.mark.parametrize("rows", [1, 2])
def test_batch_draws_what_micro_batches_draw(rows: int) -> None:
    """Also where each sample has several rows."""
    x = torch.ones(7 * rows, 5)
    with BatchDraws(UNEVEN, step=2, seed=0):
        whole = functional.dropout(functional.dropout(x, 0.5) + torch.rand(7 * rows, 5), 0.25)
    parts = []
    for index, part in enumerate(x.tensor_split([3 * rows, 5 * rows])):
        with KeyedDraws(index, step=2):
            kept = functional.dropout(part, 0.5)
            parts.append(functional.dropout(kept + torch.rand(len(part), 5), 0.25))
    assert torch.equal(whole, torch.cat(parts))


def test_a_draw_for_all_samples_is_that_of_the_first_micro_batch() -> None:
    """Also where it could be cut into rows of samples."""
    with BatchDraws(UNEVEN, step=1, seed=0, batch_draws={1}):
        drawn = [torch.rand(3), torch.rand(7)]
    with KeyedDraws(0, step=1):
        assert all(torch.equal(torch.rand(len(each)), each) for each in drawn)


def test_batch_norm_is_that_of_micro_batches_in_order() -> None:
    norm, other = nn.BatchNorm1d(3), nn.BatchNorm1d(3)
    x = torch.randn(7, 3, generator=torch.Generator().manual_seed(0))
    with norms_of_micro_batches(UNEVEN):
        whole = norm(x)
    parts = [other(part) for part in x.tensor_split(3)]
    assert torch.equal(whole, torch.cat(parts))
    assert torch.equal(norm.get_buffer("running_var"), other.get_buffer("running_var"))
    with norms_of_micro_batches(UNEVEN):
        assert torch.equal(norm.eval()(x), other.eval()(x))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_rounding_moves_results_by_their_last_place(dtype: torch.dtype) -> None:
    x = torch.randn(1000, generator=torch.Generator().manual_seed(0)).to(dtype)
    with RandomRounding(0):
        moved, copied = x * 3, x.clone()
    distance = ((moved.double() - (x * 3).double()) / (x * 3).double()).abs()
    assert 0 < distance.max() <= 2 * torch.finfo(dtype).eps
    assert torch.equal(copied, x)


def test_rounding_moves_gradients_and_repeats() -> None:
    def gradient(seed: int) -> torch.Tensor:
        x = torch.linspace(1, 2, 100).requires_grad_()
        with RandomRounding(seed):
            (x.exp() * x).sum().backward()
        assert x.grad is not None
        return x.grad

    assert torch.equal(gradient(1), gradient(1))
    assert not torch.equal(gradient(1), gradient(2))
    assert torch.allclose(gradient(1), gradient(2), rtol=1e-5)


def test_rounding_leaves_whole_numbers() -> None:
    """They are counts, or masks such as the least number of a type, and no results of rounding."""
    whole = torch.tensor([3.0, 0.0, torch.finfo(torch.float32).min] * 30)
    with RandomRounding(0):
        assert torch.equal(whole.mul(1.0), whole)
        assert not torch.equal(whole.mul(0.3), whole.mul(0.3))
