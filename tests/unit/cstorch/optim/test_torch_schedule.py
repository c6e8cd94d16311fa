"""Schedules of torch become tables of the rates that torch itself has."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
from torch.optim import lr_scheduler

from cstorch.optim.torch_schedule import TorchSchedule
from tests.support.errors import raises
from waferstream.core.errors import ConfigError

STEPS = 12

Make = Callable[[torch.optim.Optimizer], Any]

SCHEDULERS: Mapping[str, Make] = {
    "lambda": lambda o: lr_scheduler.LambdaLR(o, [lambda n: 0.9**n, lambda n: 1 / (n + 1)]),
    "step": lambda o: lr_scheduler.StepLR(o, 3),
    "one cycle": lambda o: lr_scheduler.OneCycleLR(o, 0.5, 20, cycle_momentum=False),
    "cyclic": lambda o: lr_scheduler.CyclicLR(o, 0.1, 0.5, 3, cycle_momentum=False),
    "warm restarts": lambda o: lr_scheduler.CosineAnnealingWarmRestarts(o, 4),
    "sequence": lambda o: lr_scheduler.SequentialLR(
        o, [lr_scheduler.LinearLR(o, 0.1, total_iters=3), lr_scheduler.CosineAnnealingLR(o, 6)], [3]
    ),
    "chain": lambda o: lr_scheduler.ChainedScheduler(
        [lr_scheduler.ExponentialLR(o, 0.9), lr_scheduler.ConstantLR(o, 0.5, 4)]
    ),
}


def optimizer(momentum: float = 0.0) -> torch.optim.SGD:
    groups = [{"params": [torch.nn.Parameter(torch.ones(1))], "lr": lr} for lr in (0.1, 0.02)]
    return torch.optim.SGD(groups, momentum=momentum)


def torch_rates(make: Make) -> list[list[float]]:
    """Return the rates of both groups at every count."""
    own = optimizer()
    scheduler, rates = make(own), []
    for _ in range(STEPS):
        rates.append([group["lr"] for group in own.param_groups])
        own.step()
        scheduler.step()
    return rates


def tabulated(schedule: TorchSchedule) -> list[list[float]]:
    tables = [schedule.schedule_of(group) for group in schedule.optimizer.param_groups]
    return [[table.at(step) for table in tables] for step in range(STEPS)]


@pytest.mark.parametrize("name", SCHEDULERS)
def test_table_has_the_rates_of_torch(name: str) -> None:
    given = optimizer()
    schedule = TorchSchedule(SCHEDULERS[name](given))
    before = [group["lr"] for group in given.param_groups]
    schedule.cover(STEPS)
    assert tabulated(schedule) == torch_rates(SCHEDULERS[name])
    assert [group["lr"] for group in given.param_groups] == before


@pytest.mark.parametrize("name", SCHEDULERS)
def test_scheduler_is_where_the_training_is(name: str) -> None:
    """Also where a training goes back."""
    given = optimizer()
    schedule = TorchSchedule(SCHEDULERS[name](given))
    schedule.start_at(0, 0)
    for done in (3, 7, 5):
        schedule.note_done(done)
        assert [group["lr"] for group in given.param_groups] == torch_rates(SCHEDULERS[name])[done]
    assert schedule.num_loads == 0


def test_count_of_the_program_goes_on() -> None:
    """A scheduler that the program steps itself has another table from there."""
    given = optimizer()
    scheduler = lr_scheduler.StepLR(given, 3)
    schedule = TorchSchedule(scheduler)
    schedule.start_at(0, 0)
    given.step()
    for _ in range(4):
        scheduler.step()
    assert schedule.num_loads == 4
    schedule.start_at(10, 0)
    schedule.cover(STEPS)
    assert tabulated(schedule)[4:] == torch_rates(SCHEDULERS["step"])[4:]
    assert (schedule.num_loads, schedule.offset) == (0, -6)


def test_scheduler_of_momentum_is_refused() -> None:
    given = optimizer(momentum=0.9)
    schedule = TorchSchedule(lr_scheduler.OneCycleLR(given, 0.5, 20))
    with raises(ConfigError, "scheduler-of-other-key") as caught:
        schedule.cover(STEPS)
    assert caught.value.value == "momentum"
