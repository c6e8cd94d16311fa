"""What an executor loop and the step that it runs know of each other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import torch

from wsc.core.loading import Loading
from wsc.core.program import Mode

Closure = tuple[Callable[..., Any], Any]
"""A function to call after a step, and its (args, kwargs) with StepValues."""


class Step(Protocol):
    """A traced step that is installed on the cluster."""

    mode: Mode
    batch_size: int
    closures: list[Closure]
    """Step closures that were called inside the trace: repeated for every step."""

    def note_done(self, steps: int) -> None:
        """So many steps of training have been done since the beginning."""


class Loop(Protocol):
    """The running executor loop, as closures and traced steps see it."""

    @property
    def source(self) -> Callable[[], Any]:
        """Makes the loader, on any input worker."""

    @property
    def loading(self) -> Loading:
        """Who loads the batches on the emulated machine."""

    @property
    def is_checkpoint_step(self) -> bool:
        """Whether a checkpoint is due after this iteration's step."""

    def attach(self, step: Step) -> None:
        """The loop runs this step; ConfigError if it runs another one already."""

    def position_of(self, tensor: torch.Tensor) -> int:
        """Which tensor of the batch an argument of the step is; ConfigError if none."""

    def queue(self, function: Callable[..., Any], arguments: Any) -> None:
        """Run a closure after this iteration's step, if values come back then."""
