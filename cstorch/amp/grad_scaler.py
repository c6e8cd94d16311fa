"""``cstorch.amp.GradScaler``: the factor on the loss, fixed or dynamic."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import torch

from cstorch import flags
from cstorch.current import existing_session
from cstorch.optim.optimizer import Optimizer
from cstorch.recording.recorder import active_recorder
from cstorch.recording.step_value import LossScaleValue, StepValue
from waferstream.core.errors import ConfigError
from waferstream.core.optimizer import LossScale, LossScaleRule

_WHERE = "cstorch.amp.GradScaler"
_SMALLEST = 2.0**-14
_LARGEST = {"cbfloat16": 2.0**31}
"""Default of ``max_loss_scale`` by half type, where it is not 2**15."""
_STATE = {
    "loss_scale": "scale",
    "steps_since_rescale": "steps_since_rescale",
    "overflows_since_rescale": "overflows_since_rescale",
    "num_skipped_steps": "num_skipped_steps",
}
"""Names of the state, and of the fields of LossScale that hold it."""


class GradScaler:
    """The loss scale of a training step; keeps gradients within the range of a half type.

    MemoryX divides the gradients by the scale before it clips and applies them. A dynamic scale
    (``loss_scale="dynamic"``) follows ``waferstream.core.optimizer``: where a gradient
    is not finite, the step is skipped on all weight servers and the scale is halved. Arguments and
    defaults are those of cerebras.pytorch; None is the default. ``skips_not_finite`` is our own:
    with it, a fixed scale skips the same steps as a dynamic one, and stays. The scale of the last
    step that has run is known outside of the traced step; inside, it is a value for step closures.
    """

    def __init__(
        self,
        loss_scale: float | str | None = None,
        init_scale: float | None = None,
        steps_per_increase: int | None = None,
        min_loss_scale: float | None = None,
        max_loss_scale: float | None = None,
        overflow_tolerance: float = 0.0,
        max_gradient_norm: float | None = None,
        skips_not_finite: bool = False,
    ) -> None:
        loss_scale = 1.0 if loss_scale is None else loss_scale
        self.dynamic = loss_scale == "dynamic" or skips_not_finite
        self.max_gradient_norm = max_gradient_norm if self.dynamic else None
        self._skipped_before = 0  # steps of a training whose steps this process does not count
        if not self.dynamic:
            self.current = LossScale(_checked_scale(loss_scale))
            return
        if loss_scale != "dynamic":
            self.rule = LossScaleRule(is_fixed=True)
            self.current = LossScale(_checked_scale(loss_scale))
            return
        widest = _LARGEST.get(flags.amp.half_dtype, 2.0**15)
        self.rule = LossScaleRule(
            steps_per_increase=2000 if steps_per_increase is None else steps_per_increase,
            minimum=_SMALLEST if min_loss_scale is None else min_loss_scale,
            maximum=widest if max_loss_scale is None else max_loss_scale,
            overflow_tolerance=overflow_tolerance,
        )
        _check_rule(self.rule)
        initial = widest if init_scale is None else _checked_scale(init_scale)
        self.current = LossScale(min(initial, self.rule.maximum))

    def scale(self, loss: torch.Tensor) -> torch.Tensor:
        """Return the loss to call ``backward()`` on, in fp32, scaled inside a traced step."""
        recorder = active_recorder.get()
        if recorder is None or (not self.dynamic and self.current.scale == 1.0):
            return loss
        if not self.dynamic:
            recorder.scale_loss(self.current.scale)
            return loss * self.current.scale
        return loss.float() * recorder.scale_loss_by(self)

    def unscale_(self, optimizer: Optimizer) -> None:  # noqa: ARG002
        """State that the gradients are divided by the scale now, before they are clipped."""
        if (recorder := active_recorder.get()) is not None:
            recorder.unscale()

    def step(self, optimizer: Optimizer, *args: Any, **kwargs: Any) -> None:
        """Step the optimizer, with a dynamic scale only if all gradients are finite."""
        self.clip_gradients_and_return_isfinite([optimizer])
        self.step_if_finite(optimizer, *args, **kwargs)

    def step_if_finite(self, optimizer: Optimizer, *args: Any, **kwargs: Any) -> None:
        """Step the optimizer as ``step`` does, without the clipping of ``max_gradient_norm``."""
        if (recorder := active_recorder.get()) is not None:
            recorder.has_scaled_step = True
        optimizer.step(*args, **kwargs)

    def clip_gradients_and_return_isfinite(
        self,
        optimizers: Iterable[Optimizer],  # noqa: ARG002
    ) -> torch.Tensor | StepValue:
        """Clip by ``max_gradient_norm``, if it is set; return whether all gradients are finite."""
        if (recorder := active_recorder.get()) is not None and self.max_gradient_norm is not None:
            recorder.unscale()
            recorder.clip_norm(self.max_gradient_norm)
        return self._value("is_finite")

    def update(self, new_scale: None = None) -> None:
        """Go on to the scale of the next step; ConfigError for a scale of one's own."""
        if new_scale is not None:
            raise ConfigError(
                "the next loss scale follows from the gradients",
                code="new-scale-given",
                where=f"{_WHERE}.update",
                value=new_scale,
                remedy="call update() without an argument",
            )
        if (recorder := active_recorder.get()) is not None:
            recorder.has_new_scale = True

    def get_scale(self) -> torch.Tensor | StepValue | float:
        """Return the scale of the next step."""
        return self._value("scale") if self.dynamic else self.current.scale

    def get_non_clamped_scale(self) -> torch.Tensor | StepValue | float:
        """Return the scale of the next step as it would be without ``min_loss_scale``."""
        return self._value("unlimited_scale") if self.dynamic else self.current.scale

    def get_num_skipped_steps(self) -> torch.Tensor | StepValue:
        """Return how many steps were skipped because of an overflow."""
        return self._value("num_skipped_steps", self._skipped_before)

    def state_dict(self) -> dict[str, float]:
        """Return the state for a checkpoint: the scale and its counts, as plain numbers."""
        names = _STATE if self.dynamic else {"loss_scale": "scale"}
        state = {name: getattr(self.current, field) for name, field in names.items()}
        if self.dynamic:
            state["num_skipped_steps"] += self._skipped_before
        return state

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Continue from the state of another scaler; entries that are missing stay as they are.

        Only with ``backend.restore`` do the skipped steps of the checkpoint belong to the updates
        that count; a program that loads a checkpoint itself goes on after both.
        """
        kinds = {field: type(getattr(self.current, field)) for field in _STATE.values()}
        given = {
            field: kinds[field](state_dict[name])
            for name, field in _STATE.items()
            if name in state_dict
        }
        session = existing_session()
        if "num_skipped_steps" in given and (session is None or not session.steps.restored):
            skipped = self.current.num_skipped_steps
            self._skipped_before = given["num_skipped_steps"] - skipped
            given["num_skipped_steps"] = skipped
            if session is not None:
                session.note_loaded(skips=self._skipped_before)
        self.current = LossScale(**{**vars(self.current), "unlimited": None, **given})

    def _value(self, name: str, before: int = 0) -> torch.Tensor | StepValue:
        """Return a number of the loss scale: inside a traced step, that of the step's end.

        ``before`` is added to it.
        """
        if self.dynamic and active_recorder.get() is not None:
            return LossScaleValue(name, before=before)
        return torch.tensor(getattr(self.current, name) + before)


def _checked_scale(scale: object) -> float:
    """Return a scale; ConfigError unless it is a positive, finite number."""
    if isinstance(scale, bool) or not isinstance(scale, int | float):
        raise ConfigError(
            "the loss scale must be a number or 'dynamic'",
            code="loss-scale-not-a-number",
            where=_WHERE,
            value=scale,
            remedy="GradScaler(loss_scale='dynamic') or GradScaler(loss_scale=2.0**15)",
        )
    if not (scale > 0 and math.isfinite(scale)):
        raise ConfigError(
            "the loss scale must be positive",
            code="loss-scale-not-positive",
            where=_WHERE,
            value=scale,
        )
    return float(scale)


def _check_rule(rule: LossScaleRule) -> None:
    """Raise ConfigError for limits that no scale can keep."""
    rules = {
        f"min_loss_scale is at least {_SMALLEST} (2**-14)": rule.minimum >= _SMALLEST,
        "max_loss_scale is at least min_loss_scale": rule.maximum >= rule.minimum,
        "steps_per_increase is at least 1": rule.steps_per_increase >= 1,
        "overflow_tolerance is at least 0": rule.overflow_tolerance >= 0,
    }
    if broken := [text for text, holds in rules.items() if not holds]:
        raise ConfigError(
            "the limits of a dynamic loss scale must leave room for a scale",
            code="loss-scale-limits",
            where=_WHERE,
            value=rule,
            rule="; ".join(broken),
        )
