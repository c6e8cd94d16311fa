"""Cases of torch: a function or module, with inputs of a batch, that must train."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import nn

BATCH_SIZE = 4
Maker = Callable[[torch.Generator], torch.Tensor]


@dataclass(frozen=True)
class Case:
    """A function of a float ``x``, of ``shape`` per sample, and of further inputs.

    ``build`` makes the function, often a module; ``others`` make the further inputs.
    """

    name: str
    build: Callable[[], Callable[..., Any]]
    shape: tuple[int, ...]
    others: tuple[Maker, ...] = ()

    def inputs(self) -> dict[str, torch.Tensor]:
        """Return a global batch."""
        generator = torch.Generator().manual_seed(1)
        x = torch.randn(BATCH_SIZE, *self.shape, generator=generator)
        others = (make(generator) for make in self.others)
        return {"x": x, **{f"other_{i}": tensor for i, tensor in enumerate(others)}}

    def model(self) -> CaseModel:
        """Return a model whose loss depends on a parameter through the function."""
        torch.manual_seed(0)
        return CaseModel(self.build(), self.shape)


class CaseModel(nn.Module):
    """Scales ``x`` by a parameter, so that its gradient is needed, and reduces to a scalar."""

    def __init__(self, function: Callable[..., Any], shape: tuple[int, ...]) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.rand(shape) + 0.5)
        self.function = function

    def forward(self, x: torch.Tensor, **others: torch.Tensor) -> torch.Tensor:
        """Return the function's scalar, or the mean square of its first result."""
        result = self.function(x * self.scale, *others.values())
        tensor: torch.Tensor = result if isinstance(result, torch.Tensor) else result[0]
        return tensor if tensor.dim() == 0 else tensor.square().mean()


def uniform(*shape: int) -> Maker:
    """Make numbers on [0, 1) of ``shape`` per sample."""
    return lambda generator: torch.rand(BATCH_SIZE, *shape, generator=generator)


def normal(*shape: int) -> Maker:
    """Make standard normal numbers of ``shape`` per sample."""
    return lambda generator: torch.randn(BATCH_SIZE, *shape, generator=generator)


def integers(stop: int, *shape: int) -> Maker:
    """Make integers below ``stop`` of ``shape`` per sample."""
    return lambda generator: torch.randint(0, stop, (BATCH_SIZE, *shape), generator=generator)


def signs(*shape: int) -> Maker:
    """Make -1 or 1 of ``shape`` per sample."""
    return lambda generator: torch.randint(0, 2, (BATCH_SIZE, *shape), generator=generator) * 2 - 1


def modules(shape: tuple[int, ...], calls: str, *others: Maker) -> list[Case]:
    """Return one case per line of ``calls``: a constructor of torch.nn with its arguments."""
    scope = {"nn": nn, "torch": torch}
    return [
        Case(
            f"{call.strip()} on {shape}", partial(eval, f"nn.{call.strip()}", scope), shape, others
        )
        for call in calls.strip().splitlines()
    ]


def function(name: str, call: Callable[..., Any], shape: Sequence[int], *others: Maker) -> Case:
    """Return the case of a function without parameters."""
    return Case(name, lambda: call, tuple(shape), others)
