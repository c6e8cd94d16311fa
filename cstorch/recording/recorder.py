"""Recording of a traced step: its results, its closures, and the update that follows it.

Inside a ``cstorch.trace`` function optimizers, schedulers and torch's clipping functions do not
act; they call the recorder of that trace. Its notes become the OptimizerSpec that MemoryX applies
after every step.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from cstorch import flags
from cstorch.recording.leaves import Leaves
from cstorch.recording.loop import Closure
from cstorch.recording.recorded import RecordedOptimizer, RecordedScaler, RecordedScheduler
from cstorch.recording.step_value import HyperValue, StepValue
from waferstream.compiler.capture.node_marks import loss_scale_placeholder, mark_limit
from waferstream.core.errors import ApplianceCompilationError
from waferstream.core.optimizer import LossScale, LossScaleRule, OptimizerSpec, averages_among
from waferstream.numerics.cbfloat16 import PROXY


@dataclass
class Recorder:
    """The results of one traced step, its closures, and its update.

    Every method refuses, with an ApplianceCompilationError, what MemoryX cannot do once per step
    in its fixed order: clip by value, clip by norm, update.
    """

    results: list[torch.Tensor] = field(default_factory=list)
    closures: list[Closure] = field(default_factory=list)
    leaves: Leaves | None = None  # None if the forward pass is skipped
    optimizer: RecordedOptimizer | None = None
    schedulers: list[RecordedScheduler] = field(default_factory=list)
    max_gradient_norm: float | None = None
    max_gradient_value: float | None = None
    loss_scale: float | LossScaleRule = 1.0
    scaler: RecordedScaler | None = None  # if the loss scale is dynamic
    is_unscaled: bool = False
    has_scaled_step: bool = False  # the optimizer was stepped by the scaler
    has_new_scale: bool = False  # the scaler was updated
    hidden: list[tuple[dict[str, Any], str, float]] = field(default_factory=list)
    differentiable: list[int] = field(default_factory=list)
    """Positions of the scalars among the results that have a gradient."""

    def hand_out(self, tree: Any) -> Any:
        """Make every tensor in a pytree a result of the step; return placeholders."""
        return pytree.tree_map_only(torch.Tensor, self._result, tree)

    def _result(self, tensor: torch.Tensor) -> StepValue:
        if flags.amp.half_dtype == "cbfloat16" and tensor.dtype == PROXY:
            tensor = _leaving_the_wafer(tensor)
        self._note_result(tensor)
        return StepValue(len(self.results) - 1)

    def _note_result(self, tensor: torch.Tensor, value: torch.Tensor | None = None) -> None:
        """Append a tensor of the step to its results, in the form of ``value`` if given."""
        if tensor.ndim == 0 and tensor.requires_grad:
            self.differentiable.append(len(self.results))
        self.results.append(tensor if value is None else value)

    def clip_value(self, max_value: float) -> None:
        """Clamp gradients to [-max_value, max_value] before the update."""
        self._refuse_after_step("clipping")
        self._refuse_scaled()
        if self.max_gradient_value is not None:
            raise _refusal("gradients are clipped by value twice", "clipped-twice", "once per step")
        if self.max_gradient_norm is not None:
            raise _refusal(
                "gradients are clipped by norm and then by value",
                "clipped-by-norm-first",
                "by value first",
            )
        self.max_gradient_value = float(max_value)
        mark_limit()

    def clip_norm(self, max_norm: float) -> None:
        """Scale gradients to a global L2 norm of at most ``max_norm`` before the update."""
        self._refuse_after_step("clipping")
        self._refuse_scaled()
        if self.max_gradient_norm is not None:
            raise _refusal("gradients are clipped by norm twice", "clipped-twice", "once per step")
        self.max_gradient_norm = float(max_norm)
        mark_limit()

    def scale_loss(self, loss_scale: float) -> None:
        """Divide gradients by ``loss_scale``, by which the step multiplies the loss."""
        self._refuse_second_scale()
        self.loss_scale = float(loss_scale)

    def scale_loss_by(self, scaler: RecordedScaler) -> torch.Tensor:
        """Divide gradients by the scale of each step; skip the update if one is not finite.

        Returns:
            The scale, as a scalar of the step.
        """
        self._refuse_second_scale()
        self.loss_scale, self.scaler = scaler.rule, scaler
        return loss_scale_placeholder()

    def unscale(self) -> None:
        """State that the gradients are divided by the loss scale from here on."""
        self.is_unscaled = True
        mark_limit()

    def note_done(self, steps: int, loss_scale: LossScale | None) -> None:
        """Set the loss scale, and the counts of the optimizer and the schedulers.

        Args:
            steps: Steps of training that have been done since the beginning.
            loss_scale: The scale after them, if it is dynamic. Steps that it has skipped do not
                count for the optimizer and the schedulers.
        """
        if self.scaler is not None and loss_scale is not None:
            self.scaler.current = loss_scale
        if self.optimizer is not None:
            self.optimizer.remote_state.note_done(self._applied(steps))
            self.optimizer.report_sparsity(self.optimizer.remote_state.updates)
        for scheduler in self.schedulers:
            scheduler.note_done(self._applied(steps))

    def note_called(self, steps: int) -> None:
        """Set the counts of the schedulers, unless a dynamic loss scale may still skip steps."""
        if self.scaler is None:
            for scheduler in self.schedulers:
                scheduler.note_done(steps)

    def _applied(self, steps: int) -> int:
        """Return how many of the first steps were not skipped by a dynamic loss scale."""
        return steps if self.scaler is None else steps - self.scaler.current.num_skipped_steps

    def step_optimizer(self, optimizer: RecordedOptimizer) -> None:
        """Make the update that of ``optimizer``, and of those that were stepped before it."""
        if any(scheduler.optimizer is optimizer for scheduler in self.schedulers):
            raise _refusal(
                "a scheduler is stepped before the optimizer",
                "scheduler-before-optimizer",
                "after optimizer.step(): the update of a step takes the value before it counts",
            )
        before = self.optimizer
        self.optimizer = optimizer if before is None else before.joined_with(optimizer)
        if self.leaves is not None:
            self.leaves.take(p for group in optimizer.param_groups for p in group["params"])
        for group in optimizer.param_groups:
            self._hide_numbers(optimizer, group)

    def leaves_in(self, groups: Sequence[dict[str, Any]]) -> AbstractContextManager[None]:
        """Put the weights of the running step in the places of the parameters in some groups."""
        if self.leaves is None:
            raise _refusal(
                "a hook of an optimizer would run in a step that was not recorded",
                "optimizer-hook-without-forward",
                "register hooks before the first step, or remove the compile cache",
            )
        return self.leaves.in_place(groups)

    def show_hyper(self) -> None:
        """Put the numbers back into the parameter groups of the optimizer."""
        for group, key, value in self.hidden:
            group[key] = value
        self.hidden.clear()

    def _hide_numbers(self, optimizer: RecordedOptimizer, group: dict[str, Any]) -> None:
        """Replace hyper-parameters of a group, which change between steps, by placeholders."""

        def value_of(key: str) -> float:
            """Return the value with which the last step was taken."""
            for scheduler in self.schedulers:
                is_own = scheduler.optimizer is optimizer and scheduler.sets(group)
                if scheduler.key == key and is_own:
                    return scheduler.schedule_of(group).at(max(0, scheduler.last_epoch - 1))
            return float(group[key])

        for key in ("lr", "weight_decay"):
            if isinstance(group.get(key), int | float):
                self.hidden.append((group, key, group[key]))
                group[key] = HyperValue(partial(value_of, key))

    def step_scheduler(self, scheduler: RecordedScheduler) -> None:
        """Let a hyper-parameter follow ``scheduler``."""
        if scheduler in self.schedulers:
            raise _refusal(
                "a scheduler is stepped twice in one trace",
                "scheduler-stepped-twice",
                "once per step",
            )
        self.schedulers.append(scheduler)

    def settings(self) -> list[object]:
        """Return all that decides further updates; equal to before if the user changed nothing."""
        if self.optimizer is None:
            return []
        loads = [scheduler.num_loads for scheduler in self.schedulers]
        limits = self.max_gradient_norm, self.max_gradient_value, self.loss_scale
        return [loads, limits, self.optimizer.settings(self.schedulers)]

    def spec(
        self,
        names: Mapping[torch.Tensor, str],
        num_steps: int = 1,
        done: int = 0,
        resumed: int = 0,
    ) -> OptimizerSpec | None:
        """Return the update that follows the step; None if the trace steps no optimizer.

        Args:
            names: The name in the model of each parameter.
            num_steps: Steps of training, from the first on, that the schedules have to cover.
            done: Steps of training that are done.
            resumed: Those of them that the states which the program has loaded had seen.
        """
        if self.optimizer is None:
            return None
        if self.scaler is not None and not (self.has_scaled_step and self.has_new_scale):
            raise _refusal(
                "a dynamic loss scale takes part in the update",
                "loss-scale-left-out",
                "scaler.step(optimizer) instead of optimizer.step(), then scaler.update()",
            )
        applied = self._applied(done)
        for scheduler in self.schedulers:
            scheduler.start_at(applied, resumed)
            scheduler.cover(num_steps + scheduler.offset)
        return replace(
            self.optimizer.spec(names, self.schedulers, applied, num_steps),
            max_gradient_norm=self.max_gradient_norm,
            max_gradient_value=self.max_gradient_value,
            loss_scale=self.loss_scale,
            averages=tuple(averages_among(names)),
        )

    def _refuse_second_scale(self) -> None:
        if self.loss_scale != 1.0:
            raise _refusal("the loss is scaled twice", "loss-scaled-twice", "once per step")

    def _refuse_scaled(self) -> None:
        if self.scaler is not None and not self.is_unscaled:
            raise _refusal(
                "gradients are clipped before they are unscaled",
                "clipped-before-unscaled",
                "scaler.unscale_(optimizer) before clipping: the limit is for unscaled gradients",
            )

    def _refuse_after_step(self, what: str) -> None:
        if self.optimizer is not None:
            raise _refusal(
                f"{what} after optimizer.step()",
                "clipped-after-step",
                "before it, after loss.backward()",
            )


def _leaving_the_wafer(tensor: torch.Tensor) -> torch.Tensor:
    """Return a cbfloat16 result in fp32: a scalar, or what the user's program allows to cast.

    The cast is exact. Programs sum losses in the half type and log them, as DINO of the vendor's
    Model Zoo does, whose params files do not set the flag.
    """
    if tensor.dim() == 0 or flags.csx.debug.implicit_cast_cb16_to_fp32:
        return tensor.float()
    raise ApplianceCompilationError(
        "a result of type cbfloat16 must be cast to float32 before it leaves the wafer",
        code="cbfloat16-result",
        where="the traced step",
        value=f"shape {tuple(tensor.shape)}",
        rule="PyTorch has no cbfloat16",
        remedy="return tensor.to(torch.float32), or set "
        "cstorch.backends.csx.debug.implicit_cast_cb16_to_fp32 = True",
    )


def _refusal(what: str, code: str, rule: str) -> ApplianceCompilationError:
    return ApplianceCompilationError(what, code=code, where="the traced step", rule=rule)


active_recorder: ContextVar[Recorder | None] = ContextVar("active_recorder", default=None)
"""The recorder of the trace that runs now; None outside."""


@contextmanager
def recording(recorder: Recorder | None = None) -> Iterator[Recorder]:
    """Record the calls inside with a recorder, or a new one; yields it."""
    recorder = recorder or Recorder()
    token = active_recorder.set(recorder)
    try:
        yield recorder
    finally:
        active_recorder.reset(token)
        recorder.show_hyper()


def names_of(model: nn.Module) -> dict[torch.Tensor, str]:
    """Return the name of every parameter of a model."""
    return {parameter: name for name, parameter in model.named_parameters()}


def update_of(
    recorder: Recorder, model: nn.Module, num_steps: int, trains: bool, *done: int
) -> OptimizerSpec | None:
    """Return the update of a step, None if it ``trains`` nothing; other arguments as of ``spec``.

    Raises:
        ApplianceCompilationError: There are gradients, and no optimizer takes them.
    """
    optimizer = recorder.spec(names_of(model), num_steps, *done)
    if trains and optimizer is None:
        raise ApplianceCompilationError(
            "the step computes gradients but steps no optimizer",
            code="gradients-without-optimizer",
            remedy="call optimizer.step() after loss.backward(), or leave backward() out",
        )
    return optimizer
