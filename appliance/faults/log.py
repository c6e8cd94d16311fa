"""What has happened: an empty file for each occurrence of a fault, made at that moment.

The process that a fault happened to may be gone, so files remember it: a replacement does not fail
again, and a benchmark reads there when each fault happened, and when the next step began.
"""

from __future__ import annotations

import time
from pathlib import Path

from appliance.faults.plan import Fault

_PROGRESS = "progress"


class FaultLog:
    """The occurrences of faults so far, kept in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def claim(self, fault: Fault) -> bool:
        """Return whether a fault may happen once more, and note that it does."""
        self._folder.mkdir(parents=True, exist_ok=True)
        for index in range(fault.times):
            try:
                self._file(fault, index).touch(exist_ok=False)
            except FileExistsError:
                continue
            return True
        return False

    def happened(self, fault: Fault) -> list[float]:
        """Return the times at which a fault has happened, in seconds since 1970."""
        files = (self._file(fault, index) for index in range(fault.times))
        return [path.stat().st_mtime for path in files if path.exists()]

    def note_progress(self, step: int) -> None:
        """Note that a weight server receives gradients of a step now."""
        self._folder.mkdir(parents=True, exist_ok=True)
        with (self._folder / _PROGRESS).open("a") as file:  # a line is appended as one
            file.write(f"{time.time()} {step}\n")

    def progress(self) -> list[tuple[float, int]]:
        """Return times, in seconds since 1970, and the steps whose gradients arrived then."""
        file = self._folder / _PROGRESS
        lines = file.read_text().splitlines() if file.exists() else []
        return sorted((float(at), int(step)) for at, step in map(str.split, lines))

    def _file(self, fault: Fault, index: int) -> Path:
        return self._folder / f"{str(fault).replace('/', '.')}#{index}"
