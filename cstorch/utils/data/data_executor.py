"""The executor loop: iterate over a DataExecutor and call the traced step inside."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch.utils import _pytree as pytree

from appliance.coordinator.step_results import StepResult
from cstorch import flags
from cstorch.cluster.config import current_witness
from cstorch.cluster.job_settings import ClusterConfig
from cstorch.current import current_session
from cstorch.listeners.hooks import after_transfer
from cstorch.loop.cadence import Cadence, checked_cadence, checked_steps, is_due, meeting
from cstorch.loop.loop_log import LoopLog
from cstorch.loop.pending_steps import PendingSteps
from cstorch.loop.profiler import Profiler
from cstorch.recording.loop import Step
from cstorch.recording.step_value import StepCall, StepValue, resolve
from cstorch.session.session import model_of
from cstorch.tracing.loss_result import loss_of
from cstorch.utils.data.dataloader import DataLoader
from cstorch.utils.data.given_loader import loader_of
from cstorch.utils.data.loop_batches import EveryBatch, FirstBatch, batches_of
from cstorch.utils.data.utils import Schedule
from waferstream.core.errors import ConfigError, ProgramOrderError
from waferstream.core.program.micro_batches import MicroBatchSize
from waferstream.core.program.program import Loading, ProgramKind
from waferstream.host.files import write_json

log = logging.getLogger("waferstream")

MbsSetting = MicroBatchSize
"""Values of the flag ``csx.performance.micro_batch_size``."""


class DataExecutor:
    """Loop over ``num_steps`` steps (default: one epoch) of the traced step called inside.

    Args:
        dataloader: The source of the global batches, or a loader that the program has made itself,
            such as torch's DataLoader (``GivenLoader``).
        num_steps: Steps of the loop, at most 2**31 - 1.
        checkpoint_steps: k stands for steps k, 2k, ... and the last one; 0 or None for never.
        activation_steps: The interval at which values come back (default 1), reduced so that they
            do at every checkpoint step. Values always come back after the last step.
        profiler_activities: Accepted without effect: rates and emulated times are always measured.
        cs_config: Settings of the cluster, for a session that was made without; releases to 2.2.
        writer: What ``summarize_scalar`` of these releases writes to.
        listeners: Must be empty: a listener of ``cstorch.listeners`` hears every traced step.
        micro_batch_size: A value of the flag ``csx.performance.micro_batch_size``, which it sets.

    Either interval may also be a collection of steps of this loop, counted from 1, or a Schedule,
    which counts from 0; both are taken unchanged.
    """

    def __init__(
        self,
        dataloader: DataLoader | Iterable[Any],
        num_steps: int | None = None,
        checkpoint_steps: Cadence | Schedule | None = None,
        activation_steps: Cadence | Schedule | None = None,
        profiler_activities: Sequence[str] | None = None,  # noqa: ARG002
        *,
        cs_config: ClusterConfig | None = None,
        writer: Any = None,
        listeners: Sequence[Any] | None = None,
        micro_batch_size: Any = None,
    ) -> None:
        self._session = current_session()
        _refuse_listeners(listeners)
        self.writer = writer
        if cs_config is not None:
            self._session.take_config(cs_config)
        if micro_batch_size is not None:
            flags.csx.performance.micro_batch_size = micro_batch_size
        self.dataloader = loader_of(dataloader, self._session.given_loaders)
        self.num_steps = 1
        if self._session.settings.is_e2e_execution:
            self.num_steps = checked_steps(num_steps, self.dataloader)
        self.checkpoint_steps = checked_cadence(
            "checkpoint_steps", _steps_of(checkpoint_steps, self.num_steps), least=0
        )
        self._witness = current_witness()
        if self._witness is not None:
            activation_steps = 1
        self.activation_steps = meeting(
            checked_cadence(
                "activation_steps", _steps_of(activation_steps, self.num_steps), least=1
            ),
            self.checkpoint_steps,
        )
        self.iteration = 0
        self.results: list[StepResult] = []
        self.is_ending: Callable[[], bool] | None = None
        """Says whether the loop is about to be left, so that values come back as soon as they can.

        Where it is given, jobs are short: about a second, or one step.
        """
        self._pending = PendingSteps(self, self._session)
        self._log = LoopLog(self._session, self.profiler, self.num_steps)
        self._batches: FirstBatch | EveryBatch | None = None
        self._queued: list[tuple[Callable[..., Any], Any]] = []
        self._reader: FrameType | None = None  # the code that iterates

    @property
    def profiler(self) -> Profiler:
        """Measured and emulated rates of the steps."""
        return self._pending.profiler

    @profiler.setter
    def profiler(self, profiler: Profiler) -> None:
        self._pending.profiler = profiler

    @cached_property
    def artifact_dir(self) -> Path:
        """The folder for files about this loop, made when the loop begins or when it is asked."""
        return self._session.settings.artifacts.new_executor()

    @property
    def source(self) -> Callable[[], Any]:
        """The function that makes the loader, on any input worker."""
        return self.dataloader.source

    @property
    def seed(self) -> int:
        """The seed of the loader's random numbers."""
        return self.dataloader.seed

    @property
    def offset(self) -> int:
        """Global batches that the loader is ahead of the steps of training."""
        return self.dataloader.offset

    @property
    def loading(self) -> Loading:
        """The loader of the batches on the emulated machine."""
        workers = self._session.settings.cluster_config.num_workers_per_csx
        return replace(self.dataloader.loading, num_workers_per_csx=workers)

    @property
    def last_step(self) -> int:
        """The step of training, counted from the first one of all, that the loop ends with."""
        return self._pending.start + self.num_steps

    @property
    def user_iteration(self) -> int:
        """The current iteration, counted from 1."""
        return self.iteration + 1

    @property
    def is_initial_step(self) -> bool:
        return self.iteration == 0

    @property
    def on_final_iteration(self) -> bool:
        return self.user_iteration == self.num_steps

    @property
    def is_checkpoint_step(self) -> bool:
        """Whether a checkpoint is due after this iteration's step."""
        if not self.checkpoint_steps or not self._session.settings.is_e2e_execution:
            return False
        at_the_end = isinstance(self.checkpoint_steps, int) and self.on_final_iteration
        return at_the_end or is_due(self.checkpoint_steps, self.user_iteration)

    @property
    def is_activation_step(self) -> bool:
        """Whether values come back after this iteration's step."""
        return (
            self.on_final_iteration
            or self.is_checkpoint_step
            or is_due(self.activation_steps, self.user_iteration)
        )

    @property
    def is_running(self) -> bool:
        """Whether the code goes on that iterates over the loop; an exception may have ended it."""
        return _is_executing(self._reader)

    def __len__(self) -> int:
        return self.num_steps

    def __iter__(self) -> Generator[Any]:
        if self._session.loop is not None and self._session.loop.is_running:
            raise ConfigError(
                "two executor loops run at the same time",
                code="two-loops",
                rule="the cluster runs one job at a time",
                remedy="end the first loop before the second begins",
            )
        self.dataloader.start_at(self._session.global_step)
        self._session.loop = self
        self._pending.begin()
        self._queued.clear()  # calls of a loop that was left early
        if self._session.settings.artifacts.is_chosen:
            log.debug("Files about this loop: %s", self.artifact_dir)
            steps = {"first_step": self._pending.start + 1, "num_steps": self.num_steps}
            write_json(self.artifact_dir / "metadata.json", steps)
        batches = self._batches = batches_of(self._session, self.dataloader)
        self._session.has_left_loop = True  # unless it comes to its end
        try:
            for iteration in range(self.num_steps):
                self.iteration = iteration
                started_s = time.perf_counter()
                self._reader = sys._getframe(1)
                yield batches.read(iteration)
                self._check_current()
                self._finish_iteration(time.perf_counter() - started_s)
            self._session.has_left_loop = False
        finally:
            self._reader = None
            if self._session.loop is self:
                self._session.loop = None
            self._log.close()

    def _check_current(self) -> None:
        """Raise ProgramOrderError if the loop was left, and its backend or another loop began."""
        if self._session.loop is not self:
            raise ProgramOrderError(
                "an executor loop goes on after its end",
                code="loop-ended",
                rule="another loop, or another backend, has begun in between",
                remedy="iterate over a new DataExecutor",
            )

    def turn_to(self, step: Step) -> bool:
        """Run the calls of other steps that were called before a step, if there are any.

        Raises:
            ConfigError: The step is called twice in an iteration.
        """
        pending, before = self._pending, self.iteration
        if not pending.is_turn(step, before):
            return False
        pending.run()
        if pending.step is not None and self.is_activation_step and pending.called > before:
            call = pending.call
            for function, arguments in pending.step.closures:
                own = pytree.tree_map_only(StepValue, lambda value: value.of(call), arguments)
                self._queued.append((function, own))
        pending.turn(before)
        return True

    def attach(self, step: Step, inputs: Mapping[str, torch.Tensor] | None = None) -> StepCall:
        """Make the loop run a step in this iteration; ConfigError if it runs another one.

        ``inputs`` are values of ``Program.step_inputs`` from this iteration on.
        """
        return self._pending.attach(step, self.user_iteration, inputs)

    def for_kind(self, kind: ProgramKind, arguments: Any) -> Any:
        """Return the arguments of a step with the batch that its kind reads, on CPU and GPU."""
        assert self._batches is not None, "a step is called in the loop"
        return self._batches.for_kind(kind, arguments)

    def run_pending(self) -> None:
        """Run the steps that were called and have not run yet, ahead of the activation step.

        A program that reads weights in every iteration so runs every step as a job of its own.
        """
        self._pending.run()

    def run_for_reading(self) -> None:
        """Run the pending steps, if the loop still runs, because a result is read in the loop."""
        if self._session.loop is not self:
            return
        if not self._session.is_reading_noted:
            log.info(
                "A result of the traced step is read in the loop, so that the steps up to it run at"
                " once as a job of their own; in a @cstorch.step_closure it costs nothing"
            )
            self._session.is_reading_noted = True
        self.run_pending()

    def position_of(self, tensor: torch.Tensor) -> int:
        """Return the position in the batch of an argument of the traced step."""
        leaves = self._batches.leaves if self._batches is not None else ()
        for position, leaf in enumerate(leaves):
            if leaf is tensor:
                return position
        raise ConfigError(
            "every tensor argument of the traced step must be part of the batch",
            code="tensor-not-in-batch",
            value=f"shape {tuple(tensor.shape)}, {tensor.dtype}",
            rule="the cluster streams the loader's batches; this process sees the first one only",
            remedy="change tensors in the input function or inside the traced step",
        )

    def queue(self, function: Callable[..., Any], arguments: Any) -> None:
        """Run a closure after this iteration's step, if values come back then."""
        may_be_due = self.is_activation_step or self.is_ending is not None
        if may_be_due and self._session.settings.is_e2e_execution:
            self._queued.append((function, arguments))

    def _finish_iteration(self, elapsed_s: float) -> None:
        pending = self._pending
        if pending.step is None or not self._session.settings.is_e2e_execution:
            return
        self._log.begin(pending.step.kind, lambda: pending.newest(self.user_iteration))
        is_called = pending.called == self.user_iteration
        if is_called and self._session.host is not None:
            pending.note_host_step(elapsed_s)
        is_due = self.is_activation_step or self._is_left()
        if is_due or self._is_long_job():
            pending.run()
            if is_called and (is_due or self._is_left()):
                self._return_values(pending.step)
        self._queued.clear()

    def _return_values(self, step: Step) -> None:
        """Give the closures of this iteration the values of its step, which has run."""
        self.results, self._pending.results = self._pending.results, []
        call = StepCall.of(self.results[-1]) if self.results else self._pending.call
        loss = loss_of(call.values or (), step.loss_position(self._queued))
        for function, arguments in [*step.closures, *self._queued]:
            args, kwargs = resolve(arguments, call, after_transfer)
            function(*args, **kwargs)
        self._log.note(step.kind, self.user_iteration, loss)
        if self._witness is not None and step.kind.updates:
            self._witness.note(model_of(self._session), loss, step)

    def _is_long_job(self) -> bool:
        """Return whether the called steps would keep a loop too long that is to be left."""
        return self.is_ending is not None and self._pending.is_long(self.user_iteration)

    def _is_left(self) -> bool:
        return self.is_ending is not None and self.is_ending()


def _steps_of(asked: Cadence | Schedule | None, num_steps: int) -> Cadence | None:
    """Return the steps of a schedule, counted from 1; anything else as it is.

    Args:
        asked: What a user has given as an interval.
        num_steps: Steps of the loop.
    """
    if not isinstance(asked, Schedule):
        return asked
    return frozenset(step + 1 for step in range(num_steps) if asked.match(step))


def _refuse_listeners(listeners: Sequence[Any] | None) -> None:
    """Raise ConfigError for listeners, which an executor of earlier releases took."""
    if listeners:
        raise ConfigError(
            "listeners must be registered before the step is traced",
            code="listeners-of-executor",
            where="cstorch.utils.data.DataExecutor",
            value=", ".join(type(each).__name__ for each in listeners),
            remedy="cerebras.pytorch.experimental.listener.register_traced_tensor_hook(hook)",
        )


def _is_executing(frame: FrameType | None) -> bool:
    """Return whether a frame is on the stack of a thread; None is on none.

    A generator is not closed while a traceback holds the code that an exception has ended, as that
    of the last failed cell of a notebook.
    """
    tops = sys._current_frames().values()
    return frame is not None and any(frame is one for top in tops for one in _stack(top))


def _stack(frame: FrameType | None) -> Iterator[FrameType]:
    """Yield a frame and all that wait for it."""
    while frame is not None:
        yield frame
        frame = frame.f_back
