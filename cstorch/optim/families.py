"""The classes of schedulers: one for every schedule, for learning rates and for weight decay."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from inspect import Parameter
from math import isfinite, prod
from typing import Any

import torch

from cstorch.optim.scheduler import (
    ChainedScheduler,
    PiecewiseConstantScheduler,
    Scheduler,
    SequentialScheduler,
    Tags,
)
from cstorch.optim.signatures import parameters_of, with_signature
from waferstream.core.config import validate
from waferstream.core.errors import ConfigError
from waferstream.core.hyper_schedules.base import SCHEDULES, HyperSchedule, scheduler_name
from waferstream.core.hyper_schedules.build import ALIASES, WEIGHT_DECAY_ARGUMENTS, argument_names
from waferstream.core.hyper_schedules.composed import ScaledLR, TabulatedLR

GROUP_FACTORS = ("adjust_learning_rate", "adjust_val")
"""Keys of a parameter group by which a ScalePerParam scheduler multiplies its values."""


class Sequential(SequentialScheduler):
    """Mixin of SequentialLR: takes torch's ``last_epoch``, which can only be -1."""

    @classmethod
    def argument_names(cls) -> tuple[str, ...]:
        return (*super().argument_names(), "last_epoch")

    def _by_name(self, args: Sequence[Any], named: Mapping[str, Any]) -> dict[str, Any]:
        arguments = super()._by_name(args, named)
        last_epoch = arguments.pop("last_epoch", -1)
        if last_epoch != -1:
            raise ConfigError(
                "last_epoch must be -1",
                code="last-epoch-not-supported",
                where=type(self).__name__,
                value=last_epoch,
                remedy="continue a run by load_state_dict, or from a checkpoint",
            )
        return arguments


class Chained(ChainedScheduler):
    """Mixin of ChainedScheduler: the optimizer is that of the first part."""

    def __init__(
        self,
        schedulers: Sequence[Scheduler | HyperSchedule],
        param_group_tags: Tags = None,
        *,
        optimizer: torch.optim.Optimizer | None = None,
    ) -> None:
        optimizers = [part.optimizer for part in schedulers if isinstance(part, Scheduler)]
        if optimizer is not None:
            optimizers.append(optimizer)
        if not optimizers:
            raise ConfigError(
                "a chain must consist of schedulers",
                code="chain-without-schedulers",
                where=type(self).__name__,
                value=schedulers,
                rule="a list of at least one scheduler",
            )
        super().__init__(optimizers[0], list(schedulers), param_group_tags)


class ScalePerParam(Scheduler):
    """Mixin of ScalePerParamLR: each group has a factor, ``adjust_learning_rate``, by default 1."""

    def schedule_of(self, group: Mapping[str, Any]) -> HyperSchedule:
        factor = next((group[key] for key in GROUP_FACTORS if key in group), 1.0)
        arguments = {"scheduler": self.schedule, "factor": factor}
        return validate(ScaledLR, arguments, type(self).__name__)


class Lambda(Scheduler):
    """Mixin of LambdaLR: the initial value times functions of the step.

    The functions are those that ``set_value_lambda`` returns in a subclass, called with a scalar
    fp32 tensor as the vendor does, each result multiplied by the initial value; or ``lr_lambda``,
    called with an integer as by torch. They are evaluated here, and MemoryX gets the values.

    Args:
        optimizer: The optimizer whose groups are set.
        args: The initial value, then ``param_group_tags``.
        lr_lambda: A function of the step, in place of a subclass.
    """

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        *args: Any,
        lr_lambda: Callable[[int], float] | None = None,
        **named: Any,
    ) -> None:
        self._lr_lambda = lr_lambda
        self._values: list[float] = []
        super().__init__(optimizer, *args, **named)

    @classmethod
    def argument_names(cls) -> tuple[str, ...]:
        return super().argument_names()[:1]

    def set_value_lambda(self) -> Any:
        """Return a function of the step, or a list of them; for subclasses to define."""
        raise ConfigError(
            "LambdaLR must have a function of the step",
            code="lambda-missing",
            where=type(self).__name__,
            remedy="define set_value_lambda in a subclass, or pass lr_lambda",
        )

    def cover(self, num_steps: int) -> None:
        if num_steps > len(self._values):
            # Twice as many at least: a table that grows step by step is seldom rebuilt.
            self._tabulate(max(num_steps, 2 * len(self._values)))
            self.schedule = self._build()

    def _build(self) -> HyperSchedule:
        if not self._values:
            self._tabulate(1)
        return self._table()

    def _table(self) -> TabulatedLR:
        """Return the values so far, with the initial value checked."""
        given = {WEIGHT_DECAY_ARGUMENTS.get(name, name): x for name, x in self._arguments.items()}
        return validate(TabulatedLR, {**given, "values": self._values}, type(self).__name__)

    def _tabulate(self, num_steps: int) -> None:
        """Evaluate the functions up to ``num_steps`` steps; ConfigError if one gives no rate."""
        initial = self._table().initial_learning_rate
        value_at = self._value_function(initial)
        for step in range(len(self._values), num_steps):
            value = value_at(step)
            if not (isfinite(value) and value >= 0):
                raise ConfigError(
                    f"a scheduled {self.key} must be a number of at least 0",
                    code="scheduled-value-out-of-range",
                    where=f"{type(self).__name__}, step {step}",
                    value=value,
                )
            self._values.append(value)

    def _value_function(self, initial: float) -> Callable[[int], float]:
        """Return the value as a function of the step."""
        if self._lr_lambda is not None:
            function = self._lr_lambda
            return lambda step: initial * float(function(step))
        given = self.set_value_lambda()
        functions = given if isinstance(given, list | tuple) else [given]
        return lambda step: prod(initial * float(f(torch.tensor(float(step)))) for f in functions)


MIXINS: dict[str, type[Scheduler]] = {
    "SequentialLR": Sequential,
    "ChainedLR": Chained,
    "PiecewiseConstantLR": PiecewiseConstantScheduler,
    "ScalePerParamLR": ScalePerParam,
    "LambdaLR": Lambda,
}
"""Schedulers that are more than a schedule, by the name of the schedule."""


def _parameters(kind: type[HyperSchedule], base: type[Scheduler]) -> list[Parameter]:
    """Return the parameters of the constructor of a scheduler."""
    place = Parameter.POSITIONAL_OR_KEYWORD
    optimizer = Parameter("optimizer", place, annotation=torch.optim.Optimizer)
    names = argument_names(kind, base.key)
    if kind is TabulatedLR:
        names.pop("values")
    own = parameters_of(kind, names, base)
    options = ["param_group_tags", *(["lr_lambda"] if kind is TabulatedLR else [])]
    tail = [Parameter(name, place, default=None, annotation=Any) for name in options]
    return [optimizer, *own, *tail]


def scheduler_classes(base: type[Scheduler]) -> dict[str, type[Scheduler]]:
    """Return a subclass of ``base`` for every schedule, by name; weight decay has WD for LR."""
    kinds: dict[str, type[HyperSchedule]] = {**SCHEDULES, "LambdaLR": TabulatedLR}
    if base.key == "lr":
        kinds |= {alias: SCHEDULES[name] for alias, name in ALIASES.items()}
    classes: dict[str, type[Scheduler]] = {}
    for schedule, kind in kinds.items():
        name = scheduler_name(schedule, base.key)
        mixin = MIXINS.get(ALIASES.get(schedule, schedule))
        doc = Lambda.__doc__ if mixin is Lambda else kind.__doc__
        attributes: dict[str, Any] = {
            "__doc__": doc,
            "__init__": with_signature((mixin or base).__init__, _parameters(kind, base)),
            "__module__": base.__module__,
            "kind": kind,
        }
        classes[name] = type(name, (mixin, base) if mixin else (base,), attributes)
    return classes
