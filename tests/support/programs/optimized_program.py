"""A small program with an optimizer, and the plain loop of torch that it is compared with."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch

import cstorch
from cstorch.trace import TracedStep
from tests.support.programs.cstorch_program import ROWS, batches, executor, losses, running_backend
from tests.support.roles.local_machine import Regression
from tests.support.runs.tiny_training import Shape

TORCH: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "SGD": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, dampening=0.5, fused=True),
    "Adam": lambda p: torch.optim.Adam(p, lr=0.1, eps=1e-6, amsgrad=True, fused=True),
    "AdamW": lambda p: torch.optim.AdamW(p, lr=0.1, eps=1e-6, weight_decay=0.1, fused=True),
    "NAdam": lambda p: torch.optim.NAdam(p, lr=0.1, eps=1e-6),
    "ASGD": lambda p: torch.optim.ASGD(p, lr=0.1, t0=1),
    "Adagrad": lambda p: torch.optim.Adagrad(p, lr=0.1, initial_accumulator_value=0.5),
}
"""Torch's optimizers by the name of ours."""


class Program:
    """A model, an optimizer, and the traced step that trains one with the other."""

    def __init__(self, backend: cstorch.Backend, kind: str = "AdamW", **options: Any) -> None:
        self.model = cstorch.compile(backend.model or Regression(), backend)
        make = getattr(cstorch.optim, kind)
        self.optimizer: Any = make(self.model.parameters(), **options)
        self.step: TracedStep = cstorch.trace(self._step)

    def _step(self, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        loss: torch.Tensor = self.model(**batch)
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss

    def train(self, num_steps: int, **options: Any) -> list[float]:
        """Train, and return the losses."""
        return losses(self.step, executor(num_steps, **options))


def plain_steps(
    optimizer: torch.optim.Optimizer, model: torch.nn.Module, first: int, count: int
) -> None:
    """Train a plain model on the batches of some steps, counted from 0."""
    data = list(batches())
    for step in range(first, first + count):
        optimizer.zero_grad()
        model(**data[step % len(data)]).backward()
        optimizer.step()


def reloaded(value: Any) -> Any:
    """Return what torch.load reads after torch.save."""
    file = io.BytesIO()
    torch.save(value, file)
    file.seek(0)
    return torch.load(file)


def equal(found: Mapping[str, torch.Tensor], expected: Mapping[str, torch.Tensor]) -> bool:
    """Return whether tensors of the same names have the same bits."""
    return all(torch.equal(found[name], value) for name, value in expected.items())


@contextmanager
def one_part() -> Iterator[cstorch.Backend]:
    """One system computes a whole batch at once, so that a plain loop gives the same bits."""
    with running_backend(Shape(1, servers=2)) as backend:
        cstorch.backends.csx.performance.micro_batch_size = ROWS
        yield backend
