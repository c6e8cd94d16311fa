"""The base of all optimizers: parameter groups on the host, the update itself in MemoryX."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from inspect import signature
from typing import Annotated, Any, get_type_hints

import torch
from pydantic import Field, create_model
from torch.optim.optimizer import ParamsT as Params

from cstorch.optim.recorder import RecordedScheduler, active_recorder
from wsc.core.config import Config, validate
from wsc.core.errors import ConfigError, WaferStreamError
from wsc.core.optimizer import OptimizerSpec, ParamGroup

NonNegative = Annotated[float, Field(ge=0)]
Positive = Annotated[float, Field(gt=0)]
Decay = Annotated[float, Field(ge=0, lt=1)]
"""The factor of a running average."""

Betas = tuple[Decay, Decay]
LearningRate = NonNegative | None
"""None where a scheduler gives it."""

_BOOKKEEPING = frozenset({"params", "param_names", "name", "tags"})
"""Keys of a parameter group that are no hyper-parameters; schedulers select groups by ``tags``."""


class Optimizer(torch.optim.Optimizer):
    """Parameter groups with hyper-parameters; ``step()`` is recorded, and done by MemoryX.

    A subclass is named after its rule in ``memoryx.optim``. The annotations of its constructor are
    the ranges of its hyper-parameters, for the defaults and for every parameter group.
    """

    def __init__(self, params: Params, **defaults: Any) -> None:
        super().__init__(params, defaults)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group after checking its hyper-parameters; ConfigError names a wrong one."""
        hyper = self._checked(param_group, f"parameter group {len(self.param_groups)}")
        super().add_param_group({**param_group, **hyper})

    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Ask for the update; only inside a ``cstorch.trace`` function."""
        if closure is not None:
            raise WaferStreamError(
                "step() takes no closure", rule="one forward and backward pass per step"
            )
        recorder = active_recorder.get()
        if recorder is None:
            raise WaferStreamError(
                "the optimizer runs in MemoryX",
                where=f"{type(self).__name__}.step()",
                remedy="call step() inside a cstorch.trace function",
            )
        recorder.step_optimizer(self)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clear gradients; nothing to do inside a trace, for MemoryX keeps none between steps."""
        if active_recorder.get() is None:
            super().zero_grad(set_to_none)

    def preinitialize(self) -> None:
        """Nothing to do: MemoryX allocates the state of every parameter before the first step.

        Exists because programs written for the vendor's optimizers may call it.
        """

    def spec(
        self, names: Mapping[torch.Tensor, str], schedulers: Sequence[RecordedScheduler] = ()
    ) -> OptimizerSpec:
        """The update as data, complete with every hyper-parameter.

        ``names`` maps each parameter to its name in the model. WaferStreamError for
        a parameter without a name, ConfigError for a group whose learning rate nothing gives.
        """
        groups = (
            self._group_spec(index, group, names, schedulers)
            for index, group in enumerate(self.param_groups)
        )
        return OptimizerSpec(rule=type(self).__name__, groups=tuple(groups))

    def check(self, hyper: Mapping[str, Any], where: str) -> None:
        """Refuse hyper-parameters that contradict each other; ranges are checked already."""

    def _group_spec(
        self,
        index: int,
        group: Mapping[str, Any],
        names: Mapping[torch.Tensor, str],
        schedulers: Sequence[RecordedScheduler],
    ) -> ParamGroup:
        where = f"parameter group {index}"
        setters = [scheduler for scheduler in schedulers if scheduler.sets(group)]
        schedules = {scheduler.key: scheduler.schedule for scheduler in setters}
        if len(schedules) < len(setters):
            raise ConfigError(
                "two schedulers set the same hyper-parameter",
                where=where,
                value=", ".join(type(scheduler).__name__ for scheduler in setters),
                remedy="chain them with SequentialLR, or give them different param_group_tags",
            )
        hyper = self._checked(group, where)
        if self._needs_lr(hyper) and hyper["lr"] is None and "lr" not in schedules:
            raise ConfigError(
                "nothing gives the learning rate",
                where=where,
                remedy="pass lr to the optimizer, or step a learning-rate scheduler in the trace",
            )
        # A scheduled value moves on; the optimizer is the same whenever its step is recorded.
        first = {key: schedule.at(0) for key, schedule in schedules.items()}
        return ParamGroup(
            names=tuple(_name_of(parameter, names) for parameter in group["params"]),
            hyper={**hyper, **first},
            schedules=schedules,
        )

    def _needs_lr(self, hyper: Mapping[str, Any]) -> bool:  # noqa: ARG002
        return True

    def _checked(self, group: Mapping[str, Any], where: str) -> dict[str, Any]:
        """All hyper-parameters of a group, defaults filled in, values in range."""
        own = {key: value for key, value in group.items() if key not in _BOOKKEEPING}
        where = f"{type(self).__name__}, {where}"
        hyper = dict(validate(hyper_model(type(self)), {**self.defaults, **own}, where))
        self.check(hyper, where)
        return hyper

    def _patch_step_function(self) -> None:
        # torch wraps step() in a profiler range, which a trace would capture as an op.
        self._zero_grad_profile_name = f"Optimizer.zero_grad#{type(self).__name__}.zero_grad"


def hyper_model(kind: type[Optimizer]) -> type[Config]:
    """An optimizer's hyper-parameters with ranges and defaults, read off its constructor."""
    hints = get_type_hints(kind.__init__, include_extras=True)
    parameters = signature(kind.__init__).parameters.values()
    fields: dict[str, Any] = {
        parameter.name: (hints[parameter.name], parameter.default)
        for parameter in parameters
        if parameter.name not in {"self", "params"}
    }
    return create_model(kind.__name__, __base__=Config, **fields)


def _name_of(parameter: torch.Tensor, names: Mapping[torch.Tensor, str]) -> str:
    name = names.get(parameter)
    if name is None:
        raise WaferStreamError(
            "the optimizer holds a parameter that the compiled model has not",
            value=f"a parameter of shape {tuple(parameter.shape)}",
            remedy="build the optimizer from the parameters of the model given to cstorch.compile",
        )
    return name
