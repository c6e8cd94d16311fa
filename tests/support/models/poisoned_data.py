"""A model and a loader, as a user's, of which some batches give values that are not finite."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn


class Net(nn.Module):
    """A linear model whose gradient is NaN where the second input is zero; its loss is finite."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 2)

    def forward(self, values: torch.Tensor, health: torch.Tensor) -> torch.Tensor:
        root = (self.linear(values).square().mean(1) * health).sqrt()
        return (self.linear(values) - values[:, :2]).square().mean() + root.mean()


@dataclass(frozen=True)
class Batches:
    """Batches by number: those in ``poisoned`` are not finite, those in ``missing`` are left out."""

    batch_size: int
    poisoned: frozenset[int]
    missing: frozenset[int]
    kind: str

    def batch(self, step: int) -> Any:
        number = [n for n in range(step + 1 + len(self.missing)) if n not in self.missing][step]
        generator = torch.Generator().manual_seed(number)
        values = torch.rand((self.batch_size, 4), generator=generator)
        health = torch.ones(self.batch_size)
        if number in self.poisoned and self.kind == "gradient":
            health[1] = 0.0
        elif number in self.poisoned:
            values[1, 1] = torch.inf
        return {"values": values, "health": health}

    def __len__(self) -> int:
        return 100


def make_loader(
    batch_size: int,
    poisoned: Sequence[int] = (),
    missing: Sequence[int] = (),
    kind: str = "gradient",
) -> Batches:
    """Return the loader of a params file."""
    return Batches(batch_size, frozenset(poisoned), frozenset(missing), kind)
