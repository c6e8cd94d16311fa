"""Torch's optimizers and schedulers in a traced step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import lr_scheduler

import cstorch
from tests.support.errors import raises
from tests.support.programs.cstorch_program import executor, losses, running_backend, training_step
from waferstream.core.errors import ApplianceCompilationError, ConfigError


def stepped(kind: str) -> Callable[[nn.Module], object]:
    """Return a function that steps torch's optimizer of a model, or a scheduler of it."""

    def step(model: nn.Module) -> None:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        makers: dict[str, Callable[[], Any]] = {
            "optimizer": lambda: optimizer,
            "scheduler": lambda: lr_scheduler.StepLR(optimizer, 1),
            "plateau": lambda: lr_scheduler.ReduceLROnPlateau(optimizer),
        }
        makers[kind]().step(*([1.0] if kind == "plateau" else []))

    return step


@pytest.mark.parametrize("device", ["CSX", "CPU"])
@pytest.mark.parametrize("kind", ["optimizer", "scheduler", "plateau"])
def test_step_of_torchs_is_refused_in_a_trace(kind: str, device: str) -> None:
    """Outside of the trace they are left alone."""
    code = f"torch-{'optimizer' if kind == 'optimizer' else 'scheduler'}-in-trace"
    with running_backend(device=device) as backend:
        step = training_step(backend, stepped(kind))
        with raises(ApplianceCompilationError, code):
            losses(step, executor(1))
    weight = nn.Parameter(torch.ones(1))
    weight.grad = torch.ones(1)
    plain = torch.optim.SGD([weight], lr=0.5)
    schedule = lr_scheduler.StepLR(plain, 1)
    plain.step()
    schedule.step()
    assert weight.item() == 0.5
    assert plain.param_groups[0]["lr"] == pytest.approx(0.05)


def test_scheduler_of_cstorch_needs_its_optimizer() -> None:
    """It would set a number that nobody reads."""
    optimizer = torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=0.5)
    with raises(ConfigError, "scheduler-of-foreign-optimizer"):
        cstorch.optim.lr_scheduler.ConstantLR(optimizer, 0.1, 3)
