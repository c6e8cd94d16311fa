"""Exchange between an executor loop and its traced step: closures, two protocols."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import torch

from cstorch.recording.step_value import StepCall
from waferstream.core.optimizer import LossScale
from waferstream.core.program.program import Loading, ProgramKind

Closure = tuple[Callable[..., Any], Any]
"""A function to call after a step, and its (args, kwargs) with StepValues."""


class Step(Protocol):
    """A traced step that is installed on the cluster."""

    @property
    def kind(self) -> ProgramKind:
        """``train`` or ``eval``."""

    @property
    def batch_size(self) -> int:
        """Samples of a global batch."""

    @property
    def closures(self) -> list[Closure]:
        """Step closures that were called inside the trace: repeated for every step."""

    def loss_position(self, closures: Sequence[Closure]) -> int | None:
        """Return the position of the loss among the results, None if it is unknown.

        ``closures`` are those that the loop has queued with results of the step.
        """

    @property
    def loss_scale(self) -> LossScale | None:
        """The loss scale of the next step, None if it is fixed."""

    def note_called(self, steps: int) -> None:
        """Note how many steps of training have been called since the beginning."""

    def note_done(self, steps: int, loss_scale: LossScale | None) -> None:
        """Note how many steps of training have been done since the beginning, and the scale now."""


class Loop(Protocol):
    """The running executor loop, as closures and traced steps see it."""

    @property
    def artifact_dir(self) -> Path:
        """The folder for files about this loop."""

    @property
    def is_running(self) -> bool:
        """Whether the code goes on that iterates over the loop; an exception may have ended it."""

    @property
    def source(self) -> Callable[[], Any]:
        """The function that makes the loader, on any input worker."""

    @property
    def seed(self) -> int:
        """The seed of the loader's random numbers."""

    @property
    def offset(self) -> int:
        """Global batches that the loader is ahead of the steps of training."""

    @property
    def loading(self) -> Loading:
        """The loader of the batches on the emulated machine."""

    @property
    def last_step(self) -> int:
        """The step of training, counted from the first one of all, that the loop ends with."""

    @property
    def is_initial_step(self) -> bool:
        """Whether this is the first iteration."""

    @property
    def is_checkpoint_step(self) -> bool:
        """Whether a checkpoint is due after this iteration's step."""

    def for_kind(self, kind: ProgramKind, arguments: Any) -> Any:
        """Return the arguments of a step with the batch that its kind reads, on CPU and GPU."""

    def turn_to(self, step: Step) -> bool:
        """Run the calls of other steps that were called before a step, if there are any.

        Returns:
            Whether the step does not simply go on: another one was called since its last call, or
            iterations have passed without a call.
        """

    def attach(self, step: Step, inputs: Mapping[str, torch.Tensor] | None = None) -> StepCall:
        """Make the loop run a step in this iteration; ConfigError if it runs another one.

        ``inputs`` are values of ``Program.step_inputs`` from this iteration on.
        """

    def position_of(self, tensor: torch.Tensor) -> int:
        """Return the position in the batch of an argument of the step; ConfigError if none."""

    def queue(self, function: Callable[..., Any], arguments: Any) -> None:
        """Run a closure after this iteration's step, if values come back then."""

    def run_pending(self) -> None:
        """Run the steps that were called and have not run yet, ahead of the activation step."""
