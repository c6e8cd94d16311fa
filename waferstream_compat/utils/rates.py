"""Rates of samples, measured on the host."""

from __future__ import annotations

import time

from cstorch.loop.profiler import SMOOTHING


class RateTracker:
    """Counter of samples with their rate per second of the host.

    ``rate`` is smoothed exponentially over its calls, ``global_rate`` is the mean since the reset.
    """

    def __init__(self, smoothing_factor: float = SMOOTHING) -> None:
        self.smoothing_factor = smoothing_factor
        self.reset()

    def reset(self) -> None:
        """Forget all counts and start the time again."""
        self.total_count = 0.0
        self._smoothed = 0.0
        self._start_s = self._since_s = time.perf_counter()
        self._since_count = 0.0

    def add(self, count: float) -> None:
        """Count samples."""
        self.total_count += count
        self._since_count += count

    def elapsed_seconds(self) -> float:
        """Return the time since the reset."""
        return time.perf_counter() - self._start_s

    def rate(self) -> float:
        """Return the smoothed rate of the samples since the last call."""
        now_s = time.perf_counter()
        elapsed_s = now_s - self._since_s
        if self._since_count and elapsed_s > 0:
            newest = self._since_count / elapsed_s
            weight = self.smoothing_factor if self._smoothed else 1.0
            self._smoothed = weight * newest + (1 - weight) * self._smoothed
            self._since_s, self._since_count = now_s, 0.0
        return self._smoothed

    def global_rate(self) -> float:
        """Return the mean rate since the reset."""
        elapsed_s = self.elapsed_seconds()
        return self.total_count / elapsed_s if elapsed_s > 0 else 0.0
