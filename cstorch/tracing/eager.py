"""Traced steps on CPU and GPU: the body runs in every iteration, as plain PyTorch.

Forward and backward pass run at once under autograd. Optimizer, schedulers and clipping are
recorded as on CSX, and the update is applied by the same rules after the body has returned; with
one micro-batch per batch both give the same weights.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from appliance.coordinator.step_results import check_scale, check_values
from cstorch.amp import stream_precision
from cstorch.cluster.config import computing_around, current_witness
from cstorch.listeners.hooks import note_samples, traced_tensors
from cstorch.optim.state import state_of
from cstorch.recording.leaves import Leaves
from cstorch.recording.loop import Closure, Loop
from cstorch.recording.recorded import RecordedScaler
from cstorch.recording.recorder import Recorder, recording, update_of
from cstorch.recording.step_value import StepValue
from cstorch.session.host_steps import HostSteps
from cstorch.session.session import Session, model_of
from cstorch.tracing.clipping import recorded_clipping
from cstorch.tracing.foreign_steps import refused_foreign_steps
from cstorch.tracing.loss_result import loss_position
from waferstream.compiler.capture.live_weights import live_weights
from waferstream.compiler.results.step_means import close_step
from waferstream.core.errors import ConfigError
from waferstream.core.optimizer import LossScale, OptimizerSpec
from waferstream.core.program.program import ProgramKind
from waferstream.core.roles.role import Value
from waferstream.numerics.precision import StreamPrecision


class EagerRecorder(Recorder):
    """A recorder whose results are values already."""

    def __init__(self) -> None:
        super().__init__()
        self.live: dict[str, torch.Tensor] = {}
        """The weights of the step, which have the gradients."""
        self._scaled: dict[str, torch.Tensor] = {}

    def gradients(self) -> dict[str, torch.Tensor]:
        """Return the gradients for the update, which divides them by the loss scale."""
        taken = {} if self.leaves is None else self.leaves.taken
        own = {name: weight.grad for name, weight in self.live.items()} | taken
        found = {name: gradient for name, gradient in own.items() if gradient is not None}
        return {**found, **self._scaled}

    def unscale(self) -> None:
        if self.scaler is not None and not self.is_unscaled:
            self._scaled = self.gradients()  # what the program reads may be rounded by a half type
            for name, gradient in self._scaled.items():
                self.live[name].grad = gradient / self.scaler.current.scale
        super().unscale()

    def hand_out(self, tree: Any) -> Any:
        """Return a pytree with its tensors as results: detached, floats in fp32."""
        return pytree.tree_map_only(torch.Tensor, self._value, tree)

    def scale_loss_by(self, scaler: RecordedScaler) -> torch.Tensor:
        super().scale_loss_by(scaler)
        return torch.tensor(scaler.current.scale)

    def _value(self, tensor: torch.Tensor) -> torch.Tensor:
        plain = tensor.detach()
        value = plain.float() if plain.is_floating_point() else plain
        value.position = len(self.results)  # type: ignore[attr-defined]  # as StepValue has it
        self._note_result(tensor, value)
        return value


class EagerStep:
    """A step function that runs as plain PyTorch in the user's process."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self._recorder = EagerRecorder()
        self._outputs: Any = None
        self.kind = ProgramKind.TRAIN
        self.batch_size = 0

    @property
    def closures(self) -> list[Closure]:
        """Step closures that were called inside the step."""
        return self._recorder.closures

    def loss_position(self, closures: Sequence[Closure]) -> int | None:
        """Return the position of the loss among the results, None if it is unknown."""
        own = [*self.closures, *closures]
        return loss_position(self._outputs, own, self._recorder.differentiable)

    @property
    def loss_scale(self) -> LossScale | None:
        """The loss scale of the next step, None if it is fixed."""
        return None if self._recorder.scaler is None else self._recorder.scaler.current

    def note_called(self, steps: int) -> None:
        """Do nothing: the step runs at once."""

    def note_done(self, steps: int, loss_scale: LossScale | None) -> None:
        """Set the loss scale, and the counts of the optimizer and the schedulers of the step."""
        self._recorder.note_done(steps, loss_scale)

    def run(self, session: Session, host: HostSteps, loop: Loop, args: Any, kwargs: Any) -> Any:
        """Run one step of a loop; return its results.

        Raises:
            ApplianceNanError: A result is not finite.
        """
        call = loop.attach(self)
        witness = current_witness()
        if witness is not None:
            witness.before_step(
                partial(self._compute, session, host, loop), (args, kwargs), session
            )
        undo = _undo_of(model_of(session)) if loop.is_initial_step else None
        computed = self._compute(session, host, loop, args, kwargs)
        given = (args, kwargs)
        arguments = loop.for_kind(computed.kind, given)
        if arguments is not given and undo is not None:
            undo()  # the first step has shown its kind only now, and has read another batch
            computed = self._compute(session, host, loop, *arguments)
        if self._makes_masks(host, computed, undo):
            computed = self._compute(session, host, loop, *arguments)
        self._outputs = computed.outputs
        self.kind, self.batch_size = computed.kind, _rows(arguments)
        step = session.global_step + 1
        if computed.optimizer is not None:
            scale = self.loss_scale
            state = state_of(self._recorder.optimizer)
            call.loss_scale = host.update(computed.gradients, computed.optimizer, scale, state)
            close_step(model_of(session))
            self.note_done(session.global_step, call.loss_scale)
        call.values = tuple(map(_value, self._recorder.results))
        if session.settings.check_loss and call.loss_scale and call.loss_scale.has_overflowed:
            check_scale(call.loss_scale, step)
        elif session.settings.check_loss:
            check_values(call.values, computed.kind, step)
        return pytree.tree_map_only(StepValue, lambda value: value.of(call), computed.outputs)

    def _makes_masks(
        self, host: HostSteps, computed: _Computed, undo: Callable[[], None] | None
    ) -> bool:
        """Return whether a step has shown only now which of its weights are sparse; undo it then.

        Raises:
            ConfigError: It is not the first step of a loop.
        """
        update, state = computed.optimizer, state_of(self._recorder.optimizer)
        if update is None or not host.makes_masks(update, state):
            return False
        if undo is None:
            raise ConfigError(
                "sparsity must be applied to an optimizer before its loop",
                code="sparsity-in-loop",
                where="optimizer.apply",
                rule="the weights of a step have masks before it begins",
            )
        undo()
        return True

    def _compute(
        self, session: Session, host: HostSteps, loop: Loop, args: Any, kwargs: Any
    ) -> _Computed:
        model = model_of(session)
        precision = stream_precision(model)
        _refuse_own_kernels(precision)
        self._recorder = recorder = EagerRecorder()
        note_samples(_rows((args, kwargs)))
        leaves = Leaves(model)
        with (
            recording(recorder),
            recorded_clipping(model, recorder),
            refused_foreign_steps(),
            traced_tensors(model),
            live_weights(model, host.stream(precision), precision) as live,
            computing_around(session.global_step + 1),
        ):
            recorder.live = live
            recorder.leaves = leaves
            outputs = recorder.hand_out(self._function(*args, **kwargs))
        gradients = recorder.gradients()
        trains, done = bool(gradients), (session.global_step, session.steps.resumed)
        optimizer = update_of(recorder, model, loop.last_step, trains, *done)
        return _Computed(outputs, gradients, optimizer)


def _refuse_own_kernels(precision: StreamPrecision) -> None:
    """Raise for a precision that torch's kernels on CPU and GPU have not."""
    if precision.stream == "cbfloat16":
        raise ConfigError(
            "the half type must be one of PyTorch's",
            code="cbfloat16-not-csx",
            where="cstorch.amp.set_half_dtype",
            value=precision.stream,
            rule="cbfloat16 is a type of the wafer; PyTorch has none on CPU and GPU",
            remedy='cstorch.amp.set_half_dtype("bfloat16")',
        )
    if precision.rounding == "stochastic":
        raise ConfigError(
            "results must be rounded to nearest",
            code="stochastic-rounding-not-csx",
            where="cstorch.backends.csx.precision.stochastic_rounding",
            value=True,
            rule="torch's kernels on CPU and GPU round to nearest",
            remedy="leave stochastic rounding out, or run on CSX",
        )


def _value(result: torch.Tensor) -> Value:
    """Return a result as the coordinator of a cluster gives it: scalars as numbers."""
    return float(result) if result.ndim == 0 and result.is_floating_point() else result


@dataclass(frozen=True)
class _Computed:
    """A step before its update."""

    outputs: Any
    gradients: dict[str, torch.Tensor]
    optimizer: OptimizerSpec | None

    @property
    def kind(self) -> ProgramKind:
        return ProgramKind.EVAL if self.optimizer is None else ProgramKind.TRAIN


def _undo_of(model: nn.Module) -> Callable[[], None]:
    """Return a function that takes back what a forward pass leaves: random numbers, buffers."""
    random = torch.get_rng_state()
    buffers = [(buffer, buffer.clone()) for buffer in model.buffers()]

    def undo() -> None:
        torch.set_rng_state(random)
        for buffer, value in buffers:
            buffer.copy_(value)

    return undo


def _rows(arguments: Any) -> int:
    """Return the samples of a batch: the rows of the first tensor among the arguments."""
    leaves = pytree.tree_leaves(arguments)
    return next((t.shape[0] for t in leaves if isinstance(t, torch.Tensor) and t.ndim), 1)
