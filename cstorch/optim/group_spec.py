"""Parameter groups and sparse weights as data, for the update in MemoryX."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from cstorch.recording.recorded import RecordedScheduler
from cstorch.remote.tensor import RemoteParameter
from cstorch.sparse.algorithm import SparsityAlgorithm
from memoryx.optim.rule import Rule
from waferstream.core.errors import ConfigError, WaferStreamError
from waferstream.core.hyper_schedules.base import HyperSchedule
from waferstream.core.hyper_schedules.composed import ShiftedLR
from waferstream.core.optimizer import ParamGroup
from waferstream.core.sparsity.spec import WeightSparsity


def group_spec(
    rule: Rule,
    group: Mapping[str, Any],
    hyper: Mapping[str, Any],
    names: Mapping[torch.Tensor, str],
    schedulers: Sequence[RecordedScheduler],
    where: str,
) -> ParamGroup:
    """Return a parameter group as data.

    Args:
        rule: The update rule.
        group: The group of the optimizer.
        hyper: Its hyper-parameters, complete and checked.
        names: The name in the model of each parameter.
        schedulers: The schedulers of the step, of which some set hyper-parameters of the group.
        where: The group, for errors.

    Raises:
        ConfigError: Two schedulers set one hyper-parameter, or nothing sets the learning rate.
        WaferStreamError: A parameter has no name.
    """
    setters = [scheduler for scheduler in schedulers if scheduler.sets(group)]
    schedules = {scheduler.key: _schedule_of(scheduler, group) for scheduler in setters}
    if len(schedules) < len(setters):
        raise ConfigError(
            "two schedulers set the same hyper-parameter",
            code="two-schedulers-for-one-value",
            where=where,
            value=", ".join(type(scheduler).__name__ for scheduler in setters),
            remedy="chain them with SequentialLR, or give them different param_group_tags",
        )
    if rule.needs_lr(hyper) and hyper["lr"] is None and "lr" not in schedules:
        raise ConfigError(
            "a parameter group must have a learning rate",
            code="no-learning-rate",
            where=where,
            remedy="pass lr to the optimizer, or step a learning-rate scheduler in the trace",
        )
    # A scheduled value changes with every step; the spec has its first value, so that it is the
    # same whenever the step is recorded.
    first = {key: schedule.at(0) for key, schedule in schedules.items()}
    return ParamGroup(
        names=tuple(_name_of(parameter, names) for parameter in group["params"]),
        hyper={**hyper, **first},
        schedules=schedules,
    )


def sparse_weights(
    sparsity: SparsityAlgorithm | None,
    names: Mapping[torch.Tensor, str],
    num_updates: int,
    seed: int,
) -> Iterator[WeightSparsity]:
    """Yield the sparsity of each sparse weight for so many updates."""
    if sparsity is None:
        return
    for parameter, (_, algorithm) in sparsity.assigned().items():
        yield algorithm.spec(_name_of(parameter, names), parameter, num_updates, seed)


def _schedule_of(scheduler: RecordedScheduler, group: Mapping[str, Any]) -> HyperSchedule:
    """Return the schedule that a group follows from step 1 of training on."""
    schedule, offset = scheduler.schedule_of(group), scheduler.offset
    return ShiftedLR(scheduler=schedule, offset=offset) if offset else schedule


def _name_of(parameter: torch.Tensor, names: Mapping[torch.Tensor, str]) -> str:
    remote = parameter._remote if isinstance(parameter, RemoteParameter) else None
    name = names.get(parameter) or (remote.name if remote and remote.num_tied > 1 else None)
    if name is None:
        raise WaferStreamError(
            "the parameters of the optimizer must belong to the compiled model",
            code="parameter-not-in-model",
            value=f"a parameter of shape {tuple(parameter.shape)}",
            remedy="build the optimizer from the parameters of the model given to cstorch.compile",
        )
    return name
