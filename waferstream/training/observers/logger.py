"""The base of loggers, which log the numbers of a run somewhere (waferstream.loggers has some)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping

from waferstream.training.observers.observer import (
    TRAIN_LOSS,
    EvaluationLog,
    TrainingLog,
    scalars_of,
)


class Logger(ABC):
    """A callback that observes the run and logs its numbers; a subclass says where to."""

    @abstractmethod
    def log(self, step: int, numbers: Mapping[str, float]) -> None:
        """Log the numbers of a step, by name."""

    def close(self) -> None:  # noqa: B027  (most have nothing to end)
        """End the log, after the run."""

    def began(self, first_step: int, last_step: int) -> None:  # noqa: B027
        """Do nothing: steps are logged when they are done."""

    def trained(self, log: TrainingLog) -> None:
        for step, loss in log.losses:
            more = scalars_of(log) if step == log.step else {}
            self.log(step, {TRAIN_LOSS: loss, **more})

    def evaluated(self, log: EvaluationLog) -> None:
        self.log(log.step, log.scalars)

    def summarized(self, step: int, numbers: Mapping[str, float]) -> None:
        self.log(step, numbers)
