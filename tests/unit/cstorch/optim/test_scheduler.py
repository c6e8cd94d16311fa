"""Schedulers: step count, schedule for MemoryX, selection of groups."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch

from cstorch import optim
from cstorch.optim import lr_scheduler, weight_decay_scheduler
from cstorch.optim.scheduler import Scheduler
from tests.support.errors import raises
from waferstream.core.errors import ConfigError
from waferstream.core.hyper_schedules.base import SCHEDULES, scheduler_name


@pytest.fixture
def optimizer() -> optim.Optimizer:
    groups: list[dict[str, Any]] = [
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
    ("module", "key"), [(lr_scheduler, "lr"), (weight_decay_scheduler, "weight_decay")]
)
def test_every_schedule_has_its_scheduler(module: Any, key: Any) -> None:
    """Each class of hyper_schedules appears in both families, bound to the right schedule."""
    for name, kind in SCHEDULES.items():
        scheduler = getattr(module, scheduler_name(name, key))
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
    args: dict[str, Any] = {"initial_learning_rate": 1.0, "step_size": 2, "gamma": 0.5}
    scheduler = lr_scheduler.StepLR(optimizer, **args)
    for _ in range(5):
        scheduler.step()
    other = lr_scheduler.StepLR(optimizer, **args)
    other.load_state_dict(scheduler.state_dict())
    assert other.last_epoch == 5
    assert other.get_last_lr()[0] == 0.25


def test_arguments_by_position_follow_the_vendors_order(optimizer: Any) -> None:
    """The schedule's arguments, then param_group_tags."""
    given = {"initial_learning_rate": 1.0, "end_learning_rate": 0.5, "total_iters": 4}
    by_name = lr_scheduler.LinearLR(optimizer, **given, param_group_tags="norm")
    by_position = lr_scheduler.LinearLR(optimizer, 1.0, 0.5, 4, False, ["norm"])
    assert by_position.schedule == by_name.schedule
    assert by_position.get_last_lr() == by_name.get_last_lr() == [9.0, 1.0, 9.0]
    pieces = lr_scheduler.PiecewiseConstantLR(optimizer, [0.5, 0.25], milestones=[3])
    assert [pieces.schedule.at(step) for step in (2, 3)] == [0.5, 0.25]
    assert weight_decay_scheduler.ConstantWD(optimizer, 0.5).schedule.at(3) == 0.5


@pytest.mark.parametrize(
    ("args", "named", "code"),
    [
        ((0.1, 5, None, "more"), {}, "too-many-arguments"),
        ((0.1,), {"learning_rate": 0.1}, "argument-given-twice"),
        (("fast",), {}, "wrong-type"),
        ((), {}, "missing-key"),
    ],
)
def test_wrong_arguments_by_position_are_refused(
    args: Any, named: Any, code: str, optimizer: Any
) -> None:
    """Python's TypeError would not say which scheduler."""
    with raises(ConfigError, code) as caught:
        lr_scheduler.ConstantLR(optimizer, *args, **named)
    assert caught.value.where == "ConstantLR"


def test_sequential_takes_torchs_last_epoch(optimizer: Any) -> None:
    """The only value is torch's default."""
    parts = [lr_scheduler.ConstantLR(optimizer, rate) for rate in (0.1, 0.2)]
    chain = lr_scheduler.SequentialLR(optimizer, parts, [3], -1)
    assert [chain.schedule.at(step) for step in (2, 3)] == [0.1, 0.2]
    with raises(ConfigError, "last-epoch-not-supported"):
        lr_scheduler.SequentialLR(optimizer, parts, [3], last_epoch=5)


def test_parts_of_other_groups_or_families_are_refused(optimizer: Any) -> None:
    """A sequence sets what its parts would set."""
    tagged = lr_scheduler.ConstantLR(optimizer, 0.1, param_group_tags="norm")
    with raises(ConfigError, "part-of-other-groups"):
        lr_scheduler.SequentialLR(optimizer, [tagged], [])
    with raises(ConfigError, "part-of-other-family"):
        weight_decay_scheduler.SequentialWD(optimizer, [tagged], [])


def test_chained_scheduler_has_the_optimizer_of_its_parts(optimizer: Any) -> None:
    """As torch's class it takes the parts alone; ChainedLR is the vendor's name."""
    parts = [
        lr_scheduler.ExponentialLR(optimizer, 0.5, 1, 0.9),
        lr_scheduler.MultiplicativeLR(optimizer, 2.0, 0.5),
    ]
    kinds: tuple[Any, ...] = (lr_scheduler.ChainedScheduler, lr_scheduler.ChainedLR)
    for kind in kinds:
        chain = kind(parts)
        chain.step()
        assert chain.get_last_lr() == [pytest.approx(0.5 * 0.9 * 0.5)] * 3
    with raises(ConfigError, "chain-without-schedulers"):
        kinds[0]([])


def test_scale_per_param_multiplies_by_the_groups_factor() -> None:
    """``adjust_learning_rate`` of a group, 1 where it has none."""
    groups: list[dict[str, Any]] = [
        {"params": [torch.nn.Parameter(torch.zeros(2))], "adjust_learning_rate": 0.25},
        {"params": [torch.nn.Parameter(torch.zeros(3))]},
    ]
    optimizer = optim.AdamW(groups)
    line = lr_scheduler.LinearLR(optimizer, 1.0, 0.0, 4)
    scheduler = lr_scheduler.ScalePerParamLR(optimizer, line)
    scheduler.step()
    assert scheduler.get_last_lr() == [0.1875, 0.75]
    names = {p: str(p.numel()) for group in optimizer.param_groups for p in group["params"]}
    spec = optimizer.spec(names, [scheduler])
    assert [group.at(2)["lr"] for group in spec.groups] == [0.1875, 0.75]


class Warmup(lr_scheduler.LambdaLR):  # type: ignore[valid-type, misc]
    """The vendor's way: functions of a tensor, given by a method."""

    def set_value_lambda(self) -> list[Callable[[Any], Any]]:
        return [lambda epoch: torch.div(torch.add(epoch, 1), 4)]


@pytest.mark.parametrize(
    "make",
    [
        lambda optimizer: Warmup(optimizer, 0.5),
        lambda optimizer: lr_scheduler.LambdaLR(optimizer, 0.5, lr_lambda=lambda t: (t + 1) / 4),
        lambda optimizer: Warmup(optimizer, initial_learning_rate=0.5, param_group_tags=None),
    ],
)
def test_lambda_is_tabulated_from_a_method_or_a_function(make: Any, optimizer: Any) -> None:
    """The values are those of the function at every step, in either way."""
    scheduler, seen = make(optimizer), []
    for _ in range(5):
        seen.append(scheduler.get_last_lr()[0])
        scheduler.step()
    assert seen == [0.125, 0.25, 0.375, 0.5, 0.625]


def test_lambda_spec_is_plain_data_for_the_steps_covered(optimizer: Any) -> None:
    """No function travels to MemoryX; several functions multiply, each times the initial value."""

    class Both(weight_decay_scheduler.LambdaWD):  # type: ignore[valid-type, misc]
        def set_value_lambda(self) -> list[Callable[[Any], Any]]:
            return [lambda epoch: epoch + 1, lambda epoch: 0.5**epoch]

    scheduler = Both(optimizer, initial_val=2.0)
    scheduler.cover(6)
    names = {p: str(p.numel()) for group in optimizer.param_groups for p in group["params"]}
    group = pickle.loads(pickle.dumps(optimizer.spec(names, [scheduler]))).groups[0]
    assert [group.at(step)["weight_decay"] for step in (1, 2, 6)] == [4.0, 4.0, 4 * 6 / 32]


def test_lambda_inside_a_sequence_grows_with_it(optimizer: Any) -> None:
    """The table of a part covers the steps of the whole."""
    chain = lr_scheduler.SequentialLR(
        optimizer, [lr_scheduler.ConstantLR(optimizer, 0.5, 2), Warmup(optimizer, 1.0)]
    )
    chain.cover(6)
    assert [chain.schedule.at(step) for step in range(5)] == [0.5, 0.5, 0.25, 0.5, 0.75]


@pytest.mark.parametrize(
    ("args", "named", "code"),
    [
        ((0.5,), {}, "lambda-missing"),
        ((), {"lr_lambda": abs}, "missing-key"),
        ((lambda step: step,), {}, "wrong-type"),
        ((0.5,), {"lr_lambda": lambda step: -step - 1}, "scheduled-value-out-of-range"),
        ((0.5,), {"lr_lambda": lambda _: float("nan")}, "scheduled-value-out-of-range"),
    ],
)
def test_wrong_lambda_is_refused(args: Any, named: Any, code: str, optimizer: Any) -> None:
    """Also torch's order, with the function in the place of the initial value."""
    with raises(ConfigError, code):
        lr_scheduler.LambdaLR(optimizer, *args, **named)
