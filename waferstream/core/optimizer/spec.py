"""The optimizer as data for MemoryX: rule, hyper-parameters, schedules, clipping.

The rules themselves are in ``memoryx.optim``; the classes of ``cstorch.optim``, which users
construct, produce this data.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from waferstream.core.hyper_schedules.base import HyperSchedule
from waferstream.core.optimizer.loss_scale import LossScaleRule
from waferstream.core.optimizer.weight_averages import WeightAverage
from waferstream.core.sparsity.spec import WeightSparsity


@dataclass(frozen=True)
class ParamGroup:
    """Parameters that share hyper-parameters.

    ``hyper`` holds the rule's numbers (``betas``, ``eps``, ``weight_decay``, ...); ``schedules``
    overrides single ones (``lr``, ``weight_decay``) by a function of the step.
    """

    names: tuple[str, ...]
    hyper: Mapping[str, object]
    schedules: Mapping[str, HyperSchedule] = field(default_factory=dict)

    def at(self, step: int) -> dict[str, object]:
        """Return the hyper-parameters for the update of step ``step`` (counted from 1)."""
        scheduled = {key: schedule.at(step - 1) for key, schedule in self.schedules.items()}
        return {**self.hyper, **scheduled}


@dataclass(frozen=True)
class OptimizerSpec:
    """The whole update of a step: rule, parameter groups, scaling and clipping of gradients.

    ``max_gradient_norm`` clips by global L2 norm as ``torch.nn.utils.clip_grad_norm_`` does,
    ``max_gradient_value`` clips each element as ``clip_grad_value_`` does; None switches off.
    """

    rule: str  # the name of a rule in memoryx.optim
    groups: tuple[ParamGroup, ...]
    max_gradient_norm: float | None = None
    max_gradient_value: float | None = None
    loss_scale: float | LossScaleRule = 1.0
    """Factor of the loss, or the rule of a dynamic one; gradients are divided by it at first."""

    earlier_updates: int = 0
    """Updates that the state has seen before step 1 of training; negative if it began later."""

    missed: Mapping[str, int] = field(default_factory=dict)
    """The updates, of all those before the next one, that parameters have missed."""

    sparsity: tuple[WeightSparsity, ...] = ()
    """The weights that have masks; all others are dense."""

    averages: tuple[WeightAverage, ...] = ()
    """The parameters that are moving averages of others; each follows the update of its source."""

    @property
    def scale_rule(self) -> LossScaleRule | None:
        """The rule of a dynamic loss scale, None if the scale is fixed."""
        return self.loss_scale if isinstance(self.loss_scale, LossScaleRule) else None

    @property
    def clips_by_norm(self) -> bool:
        """Whether gradients are clipped by their global norm."""
        return self.max_gradient_norm is not None

    @property
    def waits_for_all(self) -> bool:
        """Whether an update takes the gradients of all parameters: their norm, or an overflow."""
        return self.clips_by_norm or self.scale_rule is not None
