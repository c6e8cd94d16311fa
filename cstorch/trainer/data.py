"""How long a fit is, and after which of its steps a Trainer evaluates and writes checkpoints."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

from cstorch.loop.cadence import checked_steps
from cstorch.trainer.config import CSConfig


class Limited:
    """The first batches of each epoch of a loader."""

    def __init__(self, loader: Iterable[Any], num_batches: int) -> None:
        self._loader = loader
        self._num_batches = num_batches

    def __iter__(self) -> Iterator[Any]:
        return islice(self._loader, self._num_batches)

    def __len__(self) -> int:
        try:
            return min(self._num_batches, len(self._loader))  # type: ignore[arg-type]
        except TypeError:
            return self._num_batches


class Loaders:
    """The loaders that a Trainer has been given, shortened: the same object for the same one."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, int | None], Any] = {}
        self._given: list[object] = []  # kept, so that an identity stays theirs

    def of(self, given: Iterable[Any] | Callable[[], Any], most: int | None) -> Any:
        """Return a loader with at most so many batches in an epoch."""
        key = (id(given), most)
        if key not in self._known:
            self._given.append(given)
            self._known[key] = given if most is None else _limited(given, most)
        return self._known[key]


def _limited(given: Any, most: int) -> Any:
    """Return a shorter loader, or a function that makes one."""
    if callable(given):
        return lambda: Limited(given(), most)
    return Limited(given, most)


@dataclass(frozen=True)
class FitPlan:
    """The steps of one fit, counted from 1, after the ``done`` steps of earlier ones."""

    num_steps: int
    done: int
    log_steps: int
    evaluates_after: int
    checkpoint_steps: int | None

    @classmethod
    def of(cls, config: CSConfig, loader: Any, done: int, evaluates: bool) -> FitPlan:
        """Return the plan of a fit.

        Raises:
            ConfigError: The loader has no length, and the configuration no number of steps.
        """
        if config.fast_dev_run:
            return cls(1, done, 1, 1, None)
        epoch = None
        if config.max_steps is None or (evaluates and config.eval_frequency is None):
            epoch = checked_steps(None, loader)
        steps = config.max_steps or (config.max_epochs or 1) * (epoch or 1)
        interval = config.eval_frequency or epoch or steps
        return cls(
            steps, done, config.log_steps, interval if evaluates else steps, config.checkpoint_steps
        )

    def parts(self) -> Iterator[range]:
        """Yield the steps between two evaluations."""
        for first in range(1, self.num_steps + 1, self.evaluates_after):
            yield range(first, min(first + self.evaluates_after, self.num_steps + 1))

    def is_logged(self, step: int) -> bool:
        """Return whether the loss of a step is told."""
        return step % self.log_steps == 0 or step == self.num_steps

    def is_saved(self, step: int) -> bool:
        """Return whether a checkpoint follows a step."""
        interval = self.checkpoint_steps
        return interval is not None and (
            (self.done + step) % interval == 0 or step == self.num_steps
        )
