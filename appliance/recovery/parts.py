"""The parts of a recovery and their seconds, as a line of the log states them."""

from __future__ import annotations

import time
from collections.abc import Callable


class Parts:
    """The seconds of one recovery, in all and by part, in the order of the parts.

    Args:
        clock: Seconds of real time.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._began_s = self._since_s = clock()
        self._part = ""
        self._seconds: dict[str, float] = {}

    def begin(self, part: str) -> None:
        """Begin a part, perhaps once more; the one before ends."""
        self.end()
        self._part = part

    def end(self) -> None:
        """End the part that has begun."""
        now_s = self._clock()
        if self._part:
            self._seconds[self._part] = self._seconds.get(self._part, 0.0) + now_s - self._since_s
        self._part, self._since_s = "", now_s

    def __str__(self) -> str:
        """Return all seconds until the end of the last part, then those of each part."""
        parts = ", ".join(f"{part} {seconds:.1f}" for part, seconds in self._seconds.items())
        return f"{self._since_s - self._began_s:.1f} s ({parts})"
