"""The dynamic loss scale: the number by which a step multiplies its loss, and how it changes.

Gradients of a half type vanish below its smallest number and overflow above its largest. A large
factor on the loss keeps them between the two; MemoryX divides the gradients by it. Weight servers
agree on whether all gradients of a step are finite. If they are not, no server applies the update
of that step, and the next scale is smaller.

The rule is that of cerebras.pytorch 2.10, ``amp.GradScaler.update``. With S steps and V overflows
since the scale has changed last, this step included:

    V / S > overflow_tolerance    the scale is halved, S = V = 0
    S > steps_per_increase        the scale is doubled, S = V = 0
    at last                       it is limited to [minimum, maximum]

A skipped step is no step to optimizer and schedules: both count the steps that were applied.

A fixed scale with a rule of its own never changes: servers only agree on which steps are skipped.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

LOSS_SCALE_INPUT = "loss_scale"
"""Name of the graph input with the loss scale of a step."""


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
