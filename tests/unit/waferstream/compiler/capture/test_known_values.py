"""Values that constants alone decide are known in a trace; others are refused."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from tests.support.errors import raises
from tests.support.programs.kernels import run_eagerly, run_kernels
from tests.support.roles.local_machine import FP32, Regression, compile_model, random_batches
from waferstream.core.errors import ApplianceCompilationError

Change = Callable[[torch.Tensor], torch.Tensor]


class Changed(Regression):
    """A model whose input goes through a function first."""

    def __init__(self, change: Change) -> None:
        super().__init__()
        self.change = change
        self.table: torch.Tensor
        self.register_buffer("table", torch.ones(4))

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return super().forward(self.change(x), y)


class ChangedByBuffer(Changed):
    """A model that asks for the value of a buffer."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return super().forward(x * self.table.max().item(), y)


def by_length(x: torch.Tensor) -> torch.Tensor:
    return 2 * x if torch.arange(x.shape[1]).max() + 1 > 3 else x


def by_overwritten(x: torch.Tensor) -> torch.Tensor:
    counts = torch.zeros(4)
    counts[1:] += 3
    return x * counts.max().item()


def by_equality(x: torch.Tensor) -> torch.Tensor:
    return 2 * x if torch.equal(torch.ones(2), torch.full((2,), 1.0)) else x


def by_mask(x: torch.Tensor) -> torch.Tensor:
    chosen = (x * 2)[:, torch.arange(4) % 2 == 0]
    return torch.cat([chosen, chosen], dim=1)


def by_mask_written(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    y[:, torch.arange(4) > 1] = x[:, :2]
    return y


def by_places(x: torch.Tensor) -> torch.Tensor:
    return x * (torch.arange(4) > 1).nonzero().sum()


CONSTANTS = [by_length, by_overwritten, by_equality, by_mask, by_mask_written, by_places]


@pytest.mark.parametrize("change", CONSTANTS, ids=lambda change: change.__name__)
def test_value_of_a_constant_is_known_in_a_trace(change: Change) -> None:
    """Loss and gradients are those of the model on values."""
    model, batch = Changed(change), random_batches(1, 4)[0]
    compiled = compile_model(model, batch, 1)
    results, gradients = run_kernels(compiled, model, batch)
    loss, expected = run_eagerly(model, batch, FP32, 1)
    assert torch.equal(results[0], loss)
    assert all(torch.equal(gradients[name], expected[name]) for name in expected)


def by_input(x: torch.Tensor) -> torch.Tensor:
    return x * x.max().item()


def by_input_written(x: torch.Tensor) -> torch.Tensor:
    counts = torch.zeros(4)
    counts[1:] = x[0, 1:]
    return x * (counts + 1).max().item()


def by_draw(x: torch.Tensor) -> torch.Tensor:
    return x * torch.rand(4).max().item()


def by_places_of_input(x: torch.Tensor) -> torch.Tensor:
    return x * (x > 1).nonzero().sum()


OTHERS = [by_input, by_input_written, by_draw, by_places_of_input]


@pytest.mark.parametrize("change", OTHERS, ids=lambda change: change.__name__)
def test_value_of_another_tensor_is_refused(change: Change) -> None:
    """It differs from step to step."""
    with raises(ApplianceCompilationError, "op-depends-on-values"):
        compile_model(Changed(change), random_batches(1, 4)[0], 1)


def test_value_of_a_buffer_is_refused() -> None:
    """A step may write to it."""
    with raises(ApplianceCompilationError, "op-depends-on-values"):
        compile_model(ChangedByBuffer(lambda x: x), random_batches(1, 4)[0], 1)
