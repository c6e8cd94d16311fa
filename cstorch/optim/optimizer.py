"""Optimizers as a user constructs them: groups on the host, the update itself in MemoryX."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from inspect import Parameter, Signature
from typing import Any, ClassVar

import torch
from torch.optim.optimizer import ParamsT as Params

from cstorch.recorder import RecordedScheduler, active_recorder
from memoryx.optim.rule import RULES, Rule
from wsc.core.config import validate
from wsc.core.errors import ConfigError, WaferStreamError
from wsc.core.optimizer import OptimizerSpec, ParamGroup

_BOOKKEEPING = frozenset(
    {"params", "param_names", "name", "tags", "adjust_learning_rate", "adjust_val"}
)
"""Keys of a parameter group that are no hyper-parameters; schedulers read those after ``name``."""


class Optimizer(torch.optim.Optimizer):
    """Parameter groups with hyper-parameters; ``step()`` is recorded, and done by MemoryX.

    Every rule of ``memoryx.optim`` has a subclass, made by ``optimizer_classes``. The rule's
    ``Arguments`` are those of its constructor, with their ranges, for the defaults and for every
    parameter group.
    """

    rule: ClassVar[Rule]
    __signature__: ClassVar[Signature]

    def __init__(self, params: Params, *arguments: Any, **named: Any) -> None:
        given = self.__signature__.bind(params, *arguments, **named)
        given.apply_defaults()
        del given.arguments["params"]
        super().__init__(params, given.arguments)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group after checking its hyper-parameters; ConfigError names a wrong one."""
        hyper = self._checked(param_group, f"parameter group {len(self.param_groups)}")
        super().add_param_group({**param_group, **hyper})

    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Record the update; only inside a ``cstorch.trace`` function."""
        if closure is not None:
            raise WaferStreamError(
                "step() takes no closure",
                code="step-with-closure",
                rule="one forward and backward pass per step",
            )
        recorder = active_recorder.get()
        if recorder is None:
            raise WaferStreamError(
                "the optimizer runs in MemoryX",
                code="optimizer-outside-trace",
                where=f"{type(self).__name__}.step()",
                remedy="call step() inside a cstorch.trace function",
            )
        recorder.step_optimizer(self)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clear gradients; does nothing in a trace, as MemoryX keeps none between steps."""
        if active_recorder.get() is None:
            super().zero_grad(set_to_none)

    def preinitialize(self) -> None:
        """Do nothing: MemoryX allocates the state of every parameter before the first step.

        Programs written for the vendor's optimizers may call it.
        """

    def spec(
        self, names: Mapping[torch.Tensor, str], schedulers: Sequence[RecordedScheduler] = ()
    ) -> OptimizerSpec:
        """Return the update as data, complete with every hyper-parameter.

        ``names`` maps each parameter to its name in the model. WaferStreamError for
        a parameter without a name, ConfigError for a group without a learning rate.
        """
        groups = (
            self._group_spec(index, group, names, schedulers)
            for index, group in enumerate(self.param_groups)
        )
        return OptimizerSpec(rule=self.rule.name, groups=tuple(groups))

    def _group_spec(
        self,
        index: int,
        group: Mapping[str, Any],
        names: Mapping[torch.Tensor, str],
        schedulers: Sequence[RecordedScheduler],
    ) -> ParamGroup:
        where = f"parameter group {index}"
        setters = [scheduler for scheduler in schedulers if scheduler.sets(group)]
        schedules = {scheduler.key: scheduler.schedule_of(group) for scheduler in setters}
        if len(schedules) < len(setters):
            raise ConfigError(
                "two schedulers set the same hyper-parameter",
                code="two-schedulers-for-one-value",
                where=where,
                value=", ".join(type(scheduler).__name__ for scheduler in setters),
                remedy="chain them with SequentialLR, or give them different param_group_tags",
            )
        hyper = self._checked(group, where)
        if self.rule.needs_lr(hyper) and hyper["lr"] is None and "lr" not in schedules:
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

    def _checked(self, group: Mapping[str, Any], where: str) -> dict[str, Any]:
        """Return all hyper-parameters of a group, with defaults, after checking them."""
        own = {key: value for key, value in group.items() if key not in _BOOKKEEPING}
        where = f"{type(self).__name__}, {where}"
        hyper = dict(validate(self.rule.Arguments, {**self.defaults, **own}, where))
        self.rule.check(hyper, where)
        return hyper

    def _patch_step_function(self) -> None:
        # torch wraps step() in a profiler range, which a trace would capture as an op.
        self._zero_grad_profile_name = f"Optimizer.zero_grad#{type(self).__name__}.zero_grad"


def optimizer_classes(module: str) -> dict[str, type[Optimizer]]:
    """Return a subclass of Optimizer for every rule of MemoryX, by name."""
    return {name: _class_of(rule, module) for name, rule in RULES.items()}


def _class_of(rule: Rule, module: str) -> type[Optimizer]:
    fields = rule.Arguments.model_fields.items()
    arguments = [
        Parameter(
            name,
            Parameter.POSITIONAL_OR_KEYWORD,
            default=field.default,
            annotation=field.annotation,
        )
        for name, field in fields
    ]
    params = Parameter("params", Parameter.POSITIONAL_OR_KEYWORD, annotation=Params)
    attributes = {
        "__doc__": type(rule).__doc__,
        "__module__": module,
        "__signature__": Signature([params, *arguments]),
        "rule": rule,
    }
    return type(rule.name, (Optimizer,), attributes)


def _name_of(parameter: torch.Tensor, names: Mapping[torch.Tensor, str]) -> str:
    name = names.get(parameter)
    if name is None:
        raise WaferStreamError(
            "the parameters of the optimizer must belong to the compiled model",
            code="parameter-not-in-model",
            value=f"a parameter of shape {tuple(parameter.shape)}",
            remedy="build the optimizer from the parameters of the model given to cstorch.compile",
        )
    return name
