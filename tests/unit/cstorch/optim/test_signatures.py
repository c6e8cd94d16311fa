"""Constructors with named and typed arguments."""

from __future__ import annotations

import inspect
from typing import Any, List, Optional  # noqa: UP035

import pytest
import torch
from torch.optim.optimizer import ParamsT

import cstorch
from cstorch.optim import lr_scheduler
from cstorch.optim.lr_scheduler import LRScheduler


def parameters(cls: Any) -> dict[str, inspect.Parameter]:
    return dict(inspect.signature(cls.__init__).parameters)


def test_optimizers_state_their_arguments() -> None:
    adam = parameters(cstorch.optim.AdamW)
    assert list(adam)[:4] == ["self", "params", "lr", "betas"]
    assert adam["params"].annotation == ParamsT
    assert adam["lr"].annotation == Optional[float]  # noqa: UP045
    assert adam["betas"].default == (0.9, 0.999)


def test_schedulers_state_their_arguments() -> None:
    sequence = parameters(lr_scheduler.SequentialLR)
    assert sequence["optimizer"].annotation is torch.optim.Optimizer
    assert sequence["schedulers"].annotation == List[LRScheduler]  # noqa: UP006
    assert sequence["schedulers"].default is inspect.Parameter.empty
    assert sequence["param_group_tags"].default is None
    assert "lr_lambda" in parameters(lr_scheduler.LambdaLR)


@pytest.mark.parametrize("name", ["SequentialLR", "PiecewiseConstantLR"])
def test_sequences_have_a_base_of_their_own(name: str) -> None:
    assert issubclass(getattr(lr_scheduler, name), cstorch.optim.scheduler.SequentialScheduler)


def test_a_scheduler_names_its_groups() -> None:
    optimizer = cstorch.optim.SGD([{"params": [torch.zeros(1)], "tags": "a"}], lr=0.1)
    scheduler = lr_scheduler.ConstantLR(optimizer, learning_rate=0.2, param_group_tags=["a"])
    assert (scheduler.param_group_key, scheduler.param_group_tags) == ("lr", {"a"})
