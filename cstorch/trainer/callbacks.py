"""Callbacks of a ``cstorch.Trainer``: the base class, early stopping, and the best checkpoint."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from waferstream.core.errors import ConfigError, did_you_mean

if TYPE_CHECKING:
    from cstorch.trainer.trainer import Trainer

log = logging.getLogger("waferstream")

VAL_LOSS = "val_loss"
"""The name of the mean loss of an evaluation among its metrics."""


class Callback:
    """What a Trainer calls as it goes; a method that is not overridden does nothing.

    Setting ``trainer.should_stop`` ends the training after the step that is reported.
    """

    def on_fit_start(self, trainer: Trainer) -> None:
        """Begin: no step of this fit has run."""

    def on_step(self, trainer: Trainer, step: int, loss: float) -> None:
        """Take the loss of a step, counted from 1; at an interval of ``log_steps``."""

    def on_evaluation(self, trainer: Trainer, metrics: Mapping[str, float]) -> None:
        """Take the results of an evaluation by name; ``val_loss`` is the mean loss."""

    def on_checkpoint(self, trainer: Trainer, path: Path) -> None:
        """Take the path of a checkpoint that was written."""

    def on_fit_end(self, trainer: Trainer) -> None:
        """End: all steps of this fit have run."""


class _Watch:
    """The best value of a metric so far."""

    def __init__(self, monitor: str, mode: Literal["min", "max"], min_delta: float = 0.0) -> None:
        if mode not in ("min", "max"):
            raise ConfigError(
                "a metric must be best where it is smallest or largest",
                code="not-one-of",
                where="mode",
                value=mode,
                rule="min or max",
            )
        self.monitor = monitor
        self._sign = 1 if mode == "min" else -1
        self._min_delta = min_delta
        self.best = self._sign * math.inf

    def improves(self, metrics: Mapping[str, float]) -> bool:
        """Take the metrics of an evaluation; return whether theirs is the best so far.

        Raises:
            ConfigError: There is no metric of that name.
        """
        if self.monitor not in metrics:
            raise ConfigError(
                "a callback must watch a metric that an evaluation has",
                code="unknown-metric",
                where="monitor",
                value=self.monitor,
                rule=f"one of {', '.join(metrics)}",
                remedy=did_you_mean(self.monitor, list(metrics)),
            )
        value = metrics[self.monitor]
        if not self._sign * value < self._sign * self.best - self._min_delta:  # never for NaN
            return False
        self.best = value
        return True


class EarlyStopping(Callback):
    """End a training whose metric does not improve any more.

    Args:
        monitor: A metric of the evaluations.
        patience: Evaluations in a row without an improvement that end it.
        mode: Whether the smallest or the largest value is best.
        min_delta: What counts as an improvement.
    """

    def __init__(
        self,
        monitor: str = VAL_LOSS,
        patience: int = 3,
        mode: Literal["min", "max"] = "min",
        min_delta: float = 0.0,
    ) -> None:
        self._watch = _Watch(monitor, mode, min_delta)
        self._patience = patience
        self._in_vain = 0

    def on_evaluation(self, trainer: Trainer, metrics: Mapping[str, float]) -> None:
        self._in_vain = 0 if self._watch.improves(metrics) else self._in_vain + 1
        if self._in_vain >= self._patience:
            log.info(
                "Training stops: %s has not improved on %g in %d evaluations",
                self._watch.monitor, self._watch.best, self._in_vain,
            )  # fmt: skip
            trainer.should_stop = True


class BestCheckpoint(Callback):
    """Keep a checkpoint of the step whose metric is best.

    Args:
        monitor: A metric of the evaluations.
        mode: Whether the smallest or the largest value is best.
        name: The file in ``model_dir``.
    """

    def __init__(
        self, monitor: str = VAL_LOSS, mode: Literal["min", "max"] = "min", name: str = "best.mdl"
    ) -> None:
        self._watch = _Watch(monitor, mode)
        self._name = name
        self.path: Path | None = None
        """The checkpoint; None before there is one."""

    def on_evaluation(self, trainer: Trainer, metrics: Mapping[str, float]) -> None:
        if self._watch.improves(metrics) and not trainer.config.fast_dev_run:
            self.path = trainer.config.model_dir / self._name
            trainer.save_checkpoint(self.path)
