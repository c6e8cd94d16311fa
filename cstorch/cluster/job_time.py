"""The time that a job may take."""

from __future__ import annotations

import math
import time

from waferstream.core.errors import ApplianceRuntimeJobTimeoutError


class JobTime:
    """The time of one job, from the start of its cluster on.

    Args:
        limit_s: Seconds that it may take; None for any number.
    """

    def __init__(self, limit_s: int | None) -> None:
        self._limit_s = limit_s
        self._ends_at_s = math.inf  # of time.monotonic()

    def begin(self) -> None:
        """Let the time run from now on."""
        self._ends_at_s = time.monotonic() + (self._limit_s or math.inf)

    def check(self) -> None:
        """Raise ApplianceRuntimeJobTimeoutError once the time is over."""
        if time.monotonic() > self._ends_at_s:
            raise ApplianceRuntimeJobTimeoutError(
                "the job ran out of time",
                code="job-time-over",
                where="job_time_sec",
                value=f"{self._limit_s} s",
                remedy="raise it, or run again to continue from the last checkpoint",
            )
