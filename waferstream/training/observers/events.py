"""Numbers of a run as event files for TensorBoard."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

from tensorboardX.event_file_writer import EventsWriter
from tensorboardX.proto.event_pb2 import Event
from tensorboardX.summary import scalar

from waferstream.host.files import naming
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


class EventWriter:
    """Event file in a folder, to which scalars are appended; an OSError names the folder.

    Recorded scalars are in the file after ``flush`` or ``close``.
    """

    # tensorboardX's SummaryWriter writes in a thread, whose errors (a full disk) are never raised

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        with naming(folder):
            folder.mkdir(parents=True, exist_ok=True)
            self._writer = EventsWriter(str(folder / "events"))

    def scalar(self, name: str, value: float, step: int) -> None:
        """Record one value; a name with a slash has a group, as in ``train/loss``."""
        with naming(self._folder):
            event = Event(wall_time=time.time(), step=step, summary=scalar(name, value))
            self._writer.write_event(event)

    def flush(self) -> None:
        """Write the recorded scalars to the file."""
        with naming(self._folder):
            self._writer.flush()

    def close(self) -> None:
        """Write the recorded scalars and close the file."""
        with naming(self._folder):
            self._writer.close()
