"""Numbers of a run as event files for TensorBoard."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from waferstream.reports.run.event_writer import EventWriter
from waferstream.training.observers.observer import (
    TRAIN_LOSS,
    EvaluationLog,
    TrainingLog,
    scalars_of,
)


class Events:
    """Scalars for TensorBoard."""

    def __init__(self, folder: Path) -> None:
        self._writer = EventWriter(folder)

    def began(self, first_step: int, last_step: int) -> None:
        """Do nothing: steps are written when they are done."""

    def trained(self, log: TrainingLog) -> None:
        for step, loss in log.losses:
            self._writer.scalar(TRAIN_LOSS, loss, step)
        for name, value in scalars_of(log).items():
            self._writer.scalar(name, value, log.step)
        self._writer.flush()

    def evaluated(self, log: EvaluationLog) -> None:
        for name, value in log.scalars.items():
            self._writer.scalar(name, value, log.step)
        self._writer.flush()

    def summarized(self, step: int, numbers: Mapping[str, float]) -> None:
        for name, value in numbers.items():
            self._writer.scalar(name, value, step)

    def close(self) -> None:
        self._writer.close()
