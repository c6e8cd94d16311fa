"""Schedulers: step count, schedule for MemoryX, selection of groups."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from cstorch import optim
from cstorch.optim import lr_scheduler, weight_decay_scheduler
from cstorch.optim.scheduler import Scheduler
from tests.support.errors import raises
from wsc.core.errors import ConfigError
from wsc.core.hyper_schedules import SCHEDULES


@pytest.fixture
def optimizer():
    groups = [
        {"params": [torch.nn.Parameter(torch.zeros(2))], "tags": ["matrix", "slow"]},
        {"params": [torch.nn.Parameter(torch.zeros(3))], "tags": "norm"},
        {"params": [torch.nn.Parameter(torch.zeros(4))]},
    ]
    return optim.AdamW(groups, lr=9.0)


def test_groups_hold_the_current_value(optimizer: Any) -> None:
    """From construction on, and after every step, the groups hold the schedule's value."""
    scheduler = lr_scheduler.LinearLR(
        optimizer, initial_learning_rate=0.0, end_learning_rate=1.0, total_iters=4
    )
    seen = []
    for _ in range(6):
        seen.append(scheduler.get_last_lr()[0])
        scheduler.step()
    assert seen == [0.0, 0.25, 0.5, 0.75, 1.0, 1.0]


@pytest.mark.parametrize(
    ("tags", "rates"),
    [
        (None, [0.5, 0.5, 0.5]),
        ("slow", [0.5, 9.0, 9.0]),
        (["norm", "matrix"], [0.5, 0.5, 9.0]),
        ([None, "norm"], [9.0, 0.5, 0.5]),
    ],
)
def test_tags_limit_a_scheduler_to_its_groups(optimizer: Any, tags: Any, rates: Any) -> None:
    """Groups with any of the tags are set, the others keep their value, here and in the spec."""
    scheduler = lr_scheduler.ConstantLR(optimizer, learning_rate=0.5, param_group_tags=tags)
    assert scheduler.get_last_lr() == rates
    names = {p: str(p.numel()) for group in optimizer.param_groups for p in group["params"]}
    groups = optimizer.spec(names, [scheduler]).groups
    assert [group.at(7)["lr"] for group in groups] == rates


def test_tag_that_no_group_has_is_refused(optimizer: Any) -> None:
    """A scheduler that sets nothing is a mistake."""
    with raises(ConfigError, "scheduler-without-group"):
        lr_scheduler.ConstantLR(optimizer, learning_rate=0.5, param_group_tags="norms")


def test_spec_does_not_depend_on_the_step_count(optimizer: Any) -> None:
    """The spec has first values only, so that a step recorded again keeps its moments."""
    scheduler = lr_scheduler.LinearLR(
        optimizer, initial_learning_rate=0.0, end_learning_rate=1.0, total_iters=4
    )
    names = {p: str(p.numel()) for group in optimizer.param_groups for p in group["params"]}
    first = optimizer.spec(names, [scheduler])
    scheduler.step()
    assert optimizer.spec(names, [scheduler]) == first


def test_two_schedulers_for_one_value_are_refused(optimizer: Any) -> None:
    """Schedulers are chained with SequentialLR instead."""
    names = {p: "x" for group in optimizer.param_groups for p in group["params"]}
    both = [lr_scheduler.ConstantLR(optimizer, learning_rate=rate) for rate in (0.1, 0.2)]
    with raises(ConfigError, "two-schedulers-for-one-value"):
        optimizer.spec(names, both)


def test_sequential_takes_schedulers(optimizer: Any) -> None:
    """SequentialLR takes schedulers as torch's does, and finds its milestones."""
    warmup = lr_scheduler.LinearLR(
        optimizer, initial_learning_rate=0.0, end_learning_rate=1.0, total_iters=2
    )
    decay = lr_scheduler.CosineDecayLR(
        optimizer, initial_learning_rate=1.0, end_learning_rate=0.0, total_iters=4
    )
    chain = lr_scheduler.SequentialLR(optimizer, schedulers=[warmup, decay])
    values = [chain.schedule.at(step) for step in range(7)]
    assert values[:3] == [0.0, 0.5, 1.0]
    assert values[4] == pytest.approx(0.5)
    assert values[6] == 0.0
    assert chain.get_last_lr()[0] == 0.0


def test_weight_decay_scheduler_has_its_own_arguments(optimizer: Any) -> None:
    """LinearWD with initial_val and end_val moves weight_decay and leaves lr alone."""
    scheduler = weight_decay_scheduler.LinearWD(
        optimizer, initial_val=1.0, end_val=0.0, total_iters=2
    )
    scheduler.step()
    assert [group["weight_decay"] for group in optimizer.param_groups] == [0.5] * 3
    assert [group["lr"] for group in optimizer.param_groups] == [9.0] * 3


@pytest.mark.parametrize(
    ("module", "suffix"), [(lr_scheduler, "LR"), (weight_decay_scheduler, "WD")]
)
def test_every_schedule_has_its_scheduler(module: Any, suffix: Any) -> None:
    """Each class of hyper_schedules appears in both families, bound to the right schedule."""
    for name, kind in SCHEDULES.items():
        scheduler = getattr(module, name.removesuffix("LR") + suffix)
        assert issubclass(scheduler, Scheduler)
        assert scheduler.kind is kind


def test_wrong_argument_names_the_scheduler(optimizer: Any) -> None:
    """The error of a misspelt argument says which scheduler."""
    with pytest.raises(ConfigError) as caught:
        lr_scheduler.ConstantLR(optimizer, learning_rate=0.1, learnin_rate=0.1)
    assert "'learning_rate'" in str(caught.value.remedy)
    assert caught.value.where == "ConstantLR"


def test_state_dict_restores_the_step_count(optimizer: Any) -> None:
    """state_dict holds the count; loading it restores the value of that step."""
    args = {"initial_learning_rate": 1.0, "step_size": 2, "gamma": 0.5}
    scheduler = lr_scheduler.StepLR(optimizer, **args)
    for _ in range(5):
        scheduler.step()
    other = lr_scheduler.StepLR(optimizer, **args)
    other.load_state_dict(scheduler.state_dict())
    assert other.last_epoch == 5
    assert other.get_last_lr()[0] == 0.25
