"""Exchange between an executor loop and its traced step: step values, closures, two protocols."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn, Protocol

import torch
from torch.utils import _pytree as pytree

from wsc.core.errors import WaferStreamError
from wsc.core.loading import Loading
from wsc.core.program import Mode

Closure = tuple[Callable[..., Any], Any]
"""A function to call after a step, and its (args, kwargs) with StepValues."""


class StepValue:
    """A scalar result of a step, before the step has run; step closures receive the tensor."""

    def __init__(self, position: int) -> None:
        self.position = position

    def _refuse(self, *_args: object) -> NoReturn:
        raise WaferStreamError(
            "a result of the traced step was read before the step has run",
            code="step-value-read-early",
            rule="on CSX tensors exist only after the step",
            remedy="pass it to a function decorated with @cstorch.step_closure",
        )

    item = cpu = numpy = tolist = detach = _refuse
    __float__ = __int__ = __bool__ = __format__ = __add__ = __mul__ = _refuse

    def __repr__(self) -> str:
        return f"<result {self.position} of the traced step, known after it has run>"


def resolve(arguments: Any, values: tuple[float, ...]) -> Any:
    """Replace every StepValue in a pytree by the fp32 scalar tensor of its value."""

    def leaf(value: Any) -> Any:
        return torch.tensor(values[value.position]) if isinstance(value, StepValue) else value

    return pytree.tree_map(leaf, arguments)


class Step(Protocol):
    """A traced step that is installed on the cluster."""

    @property
    def mode(self) -> Mode:
        """``train`` or ``eval``."""

    @property
    def batch_size(self) -> int:
        """Samples of a global batch."""

    @property
    def closures(self) -> list[Closure]:
        """Step closures that were called inside the trace: repeated for every step."""

    def note_done(self, steps: int) -> None:
        """Note how many steps of training have been done since the beginning."""


class Loop(Protocol):
    """The running executor loop, as closures and traced steps see it."""

    @property
    def source(self) -> Callable[[], Any]:
        """The function that makes the loader, on any input worker."""

    @property
    def seed(self) -> int:
        """The seed of the loader's random numbers."""

    @property
    def loading(self) -> Loading:
        """The loader of the batches on the emulated machine."""

    @property
    def last_step(self) -> int:
        """The step of training, counted from the first one of all, that the loop ends with."""

    @property
    def is_checkpoint_step(self) -> bool:
        """Whether a checkpoint is due after this iteration's step."""

    def attach(self, step: Step) -> None:
        """Make the loop run a step; ConfigError if it runs another one already."""

    def position_of(self, tensor: torch.Tensor) -> int:
        """Return the position in the batch of an argument of the step; ConfigError if none."""

    def queue(self, function: Callable[..., Any], arguments: Any) -> None:
        """Run a closure after this iteration's step, if values come back then."""

    def run_pending(self) -> None:
        """Run the steps that were called and have not run yet, ahead of the activation step."""
