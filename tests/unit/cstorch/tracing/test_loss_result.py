"""Which result of a step progress lines show as its loss."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest
import torch

import cstorch
from cstorch.tracing.loss_result import loss_of
from tests.support.programs.cstorch_program import executor, running_backend
from tests.support.roles.local_machine import Regression

Step = Callable[[torch.Tensor, torch.Tensor], Any]


@cstorch.step_closure
def note(size: torch.Tensor, loss: torch.Tensor) -> None:
    """Receive two scalars."""


def noted(loss: torch.Tensor, size: torch.Tensor) -> torch.Tensor:
    """Return another result than the loss, which a closure gets by name."""
    note(size, loss)
    return size + loss


STEPS: dict[str, Step] = {
    "named": lambda loss, size: {"size": size * loss, "loss": loss},
    "passed to a closure": noted,
    "the only one with a gradient": lambda loss, size: (size, loss),
    "the first": lambda loss, size: (loss, size * loss),
}


@pytest.mark.parametrize("kind", STEPS)
@pytest.mark.parametrize("device", ["CSX", "CPU"])
def test_progress_line_shows_the_loss(
    kind: str, device: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The other result is the number of inputs, or depends on it."""
    with caplog.at_level(logging.INFO, "waferstream"), running_backend(device=device) as backend:
        model = cstorch.compile(Regression(), backend)
        seen: list[torch.Tensor] = []

        @cstorch.step_closure
        def keep(value: torch.Tensor) -> None:
            seen.append(value)

        @cstorch.trace
        def step(batch: dict[str, torch.Tensor]) -> Any:
            loss: torch.Tensor = model(**batch)
            keep(loss)
            return STEPS[kind](loss, torch.full((), 12.0))

        for batch in executor(1):
            step(batch)
    lines = [message for message in caplog.messages if message.startswith("| Eval")]
    assert f"Loss={seen[0].item():.5f}" in lines[0]


def test_loss_is_a_number() -> None:
    """A tensor that is named like a loss is not shown."""
    assert loss_of((torch.ones(3), 2.0), 0) is None
    assert loss_of((torch.ones(3), 2.0), None) == 2.0
    assert loss_of((), None) is None
