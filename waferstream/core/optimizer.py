"""The optimizer as data for MemoryX: rule, hyper-parameters, schedules, clipping, loss scale.

The rules themselves are in ``memoryx.optim``; the classes of ``cstorch.optim``, which users
construct, produce this data.

**The dynamic loss scale** is the number by which a step multiplies its loss. Gradients of a half
type vanish below its smallest number and overflow above its largest. A large factor on the loss
keeps them between the two; MemoryX divides the gradients by it. Weight servers agree on whether all
gradients of a step are finite. If they are not, no server applies the update of that step, and the
next scale is smaller.

The rule is that of cerebras.pytorch 2.10, ``amp.GradScaler.update``. With S steps and V overflows
since the scale has changed last, this step included:

    V / S > overflow_tolerance    the scale is halved, S = V = 0
    S > steps_per_increase        the scale is doubled, S = V = 0
    at last                       it is limited to [minimum, maximum]

A skipped step is no step to optimizer and schedules: both count the steps that were applied. A
fixed scale with a rule of its own never changes: servers only agree on which steps are skipped.

**Parameters that are moving averages of others**, as the teacher of a self-supervised model: no
gradient trains such a parameter. After every update of its source, MemoryX sets

    average = decay * average + (1 - decay) * source

with the updated source, in fp32; ``decay`` follows a schedule over the updates. A step whose update
is skipped leaves the average as it is. Source and average lie in the same weight server.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from waferstream.core.hyper_schedules.base import HyperSchedule
from waferstream.core.sparsity.spec import WeightSparsity

if TYPE_CHECKING:
    import torch

FLOPS_OF_AVERAGE = 3
"""Operations per element: two multiplications and an addition."""

_MARK = "_weight_average"

LOSS_SCALE_INPUT = "loss_scale"
"""Name of the graph input with the loss scale of a step."""


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
class WeightAverage:
    """One parameter that is the moving average of another one."""

    average: str
    source: str
    decay: HyperSchedule

    def decay_at(self, update: int) -> float:
        """Return the factor on the average after an update of its source, counted from 1."""
        return self.decay.at(update)


def average_weights(
    averages: Sequence[torch.Tensor], sources: Sequence[torch.Tensor], decay: HyperSchedule
) -> None:
    """Let parameters be the moving averages of others, from the next update on.

    Args:
        averages: The parameters; no gradient trains them any more.
        sources: The parameter that each one averages, of the same shape.
        decay: Factor on the averages as a function of the number of updates.
    """
    for average, source in zip(averages, sources, strict=True):
        assert average.shape == source.shape, "an average has the shape of its source"
        average.requires_grad_(False)
        setattr(average, _MARK, (source, decay))


def averages_among(names: Mapping[torch.Tensor, str]) -> Iterator[WeightAverage]:
    """Yield the averages among the parameters of a model, whose names are given."""
    for parameter, name in names.items():
        if (mark := getattr(parameter, _MARK, None)) is not None:
            source, decay = mark
            yield WeightAverage(name, names[source], decay)


def advance(average: torch.Tensor, source: torch.Tensor, decay: float) -> None:
    """Set an average to ``decay * average + (1 - decay) * source``, in place."""
    average.mul_(decay).add_(source, alpha=1.0 - decay)


@dataclass(frozen=True)
class LossScale:
    """A loss scale and the counts from which the next one follows."""

    scale: float
    steps_since_rescale: int = 0
    overflows_since_rescale: int = 0
    num_skipped_steps: int = 0  # of the whole training
    has_overflowed: bool = False  # in the step that led here
    unlimited: float | None = None  # before it was limited from below

    @property
    def is_finite(self) -> bool:
        """Whether all gradients of the step that led here were finite."""
        return not self.has_overflowed

    @property
    def unlimited_scale(self) -> float:
        """The scale if there were no minimum."""
        return self.scale if self.unlimited is None else self.unlimited

    @property
    def is_exhausted(self) -> bool:
        """Whether gradients overflow although the scale is at its minimum."""
        return self.has_overflowed and self.unlimited_scale < self.scale


@dataclass(frozen=True)
class LossScaleRule:
    """How a loss scale follows from the one before. A fixed scale ignores the other fields."""

    steps_per_increase: int = 0
    minimum: float = 1.0
    maximum: float = 1.0
    overflow_tolerance: float = 0.0
    is_fixed: bool = False

    def after(self, before: LossScale, is_finite: bool) -> LossScale:
        """Return the scale after a step, by whether all of its gradients were finite."""
        num_skipped = before.num_skipped_steps + (not is_finite)
        if self.is_fixed:
            return replace(before, num_skipped_steps=num_skipped, has_overflowed=not is_finite)
        scale = before.scale
        steps = before.steps_since_rescale + 1
        overflows = before.overflows_since_rescale + (not is_finite)
        if overflows / steps > self.overflow_tolerance:
            scale, steps, overflows = scale / 2, 0, 0
        if steps > self.steps_per_increase:
            scale, steps, overflows = scale * 2, 0, 0
        unlimited = min(scale, self.maximum)
        return LossScale(
            scale=max(unlimited, self.minimum),
            steps_since_rescale=steps,
            overflows_since_rescale=overflows,
            num_skipped_steps=num_skipped,
            has_overflowed=not is_finite,
            unlimited=unlimited,
        )


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
