"""Schedules of transformers, which are LambdaLR of torch, over an optimizer of cstorch."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from transformers import get_cosine_schedule_with_warmup, get_linear_schedule_with_warmup

import cstorch
from cstorch import backends
from tests.support.nightly import nightly
from tests.support.programs.cstorch_program import batches, executor, running_backend
from tests.support.roles.local_machine import Regression

STEPS = 6


def linear(optimizer: Any) -> Any:
    return get_linear_schedule_with_warmup(optimizer, 2, 8)


def cosine(optimizer: Any) -> Any:
    return get_cosine_schedule_with_warmup(optimizer, 1, 8)


def groups(model: nn.Module) -> list[dict[str, Any]]:
    first, *others = model.parameters()
    return [{"params": [first], "lr": 0.2}, {"params": others, "lr": 0.1}]


def plain(make: Any) -> tuple[nn.Module, Any]:
    """Return a model and a schedule after a plain loop."""
    model = Regression()
    optimizer = torch.optim.SGD(groups(model), momentum=0.9)
    schedule = make(optimizer)
    data = batches()
    for step in range(STEPS):
        optimizer.zero_grad()
        model(**data[step % len(data)]).backward()
        optimizer.step()
        schedule.step()
    return model, schedule


@pytest.mark.parametrize("make", [linear, *nightly(cosine)])
@pytest.mark.parametrize(("device", "interval"), [("CSX", 1), ("CSX", 3), ("CPU", 1)])
@pytest.mark.parametrize("is_traced", [True, False])
def test_weights_and_rates_are_those_of_a_plain_loop(
    make: Any, device: str, interval: int, is_traced: bool
) -> None:
    """Whether the schedule is stepped inside of the traced step or in the loop."""
    with running_backend(device=device) as backend:
        backends.csx.performance.micro_batch_size = 4
        model = cstorch.compile(Regression(), backend)
        optimizer = cstorch.optim.SGD(groups(model), momentum=0.9)
        schedule = make(optimizer)

        @cstorch.trace
        def step(batch: dict[str, torch.Tensor]) -> torch.Tensor:
            loss: torch.Tensor = model(**batch)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            if is_traced:
                schedule.step()
            return loss

        for _ in range(2):  # loops, of which the second goes on
            for batch in executor(STEPS // 2, activation_steps=interval):
                step(batch)
                if not is_traced:
                    schedule.step()
        reference, expected = plain(make)
        assert schedule.last_epoch == STEPS
        assert schedule.get_last_lr() == pytest.approx(expected.get_last_lr())
        assert [g["lr"] for g in optimizer.param_groups] == pytest.approx(expected.get_last_lr())
        for name, value in reference.state_dict().items():
            torch.testing.assert_close(model.state_dict()[name], value, rtol=0, atol=1e-5)


def test_schedule_goes_on_from_a_count_that_was_loaded() -> None:
    """As one that another run has saved."""
    with running_backend() as backend:
        model = cstorch.compile(Regression(), backend)
        optimizer = cstorch.optim.SGD(groups(model))
        schedule = linear(optimizer)
        saved = plain(linear)[1].state_dict()
        schedule.load_state_dict(saved)

        @cstorch.trace
        def step(batch: dict[str, torch.Tensor]) -> None:
            model(**batch).backward()
            optimizer.step()
            optimizer.zero_grad()
            schedule.step()

        for batch in executor(1):
            step(batch)
        assert schedule.last_epoch == STEPS + 1
        assert schedule.get_last_lr() == pytest.approx([0.2 / 6, 0.1 / 6])
