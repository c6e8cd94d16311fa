"""Event files for TensorBoard."""

from __future__ import annotations

import time
from pathlib import Path

from tensorboardX.event_file_writer import EventsWriter
from tensorboardX.proto.event_pb2 import Event
from tensorboardX.summary import scalar

from wsc.core.files import naming


class EventWriter:
    """Appends scalars to one event file in ``folder``; an OSError names the file.

    What was recorded is in the file after ``flush`` or ``close``. tensorboardX' own writer leaves
    this to a thread, whose errors, as that of a full disk, reach nobody.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        with naming(folder):
            folder.mkdir(parents=True, exist_ok=True)
            self._writer = EventsWriter(str(folder / "events"))

    def scalar(self, name: str, value: float, step: int) -> None:
        """Record one value; names with a slash share a group, as in ``train/loss``."""
        with naming(self._folder):
            event = Event(wall_time=time.time(), step=step, summary=scalar(name, value))
            self._writer.write_event(event)

    def flush(self) -> None:
        """Write what is buffered."""
        with naming(self._folder):
            self._writer.flush()

    def close(self) -> None:
        """Write what is buffered and close the file."""
        with naming(self._folder):
            self._writer.close()
