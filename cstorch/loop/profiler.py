"""Rates of a running loop: measured on this host, and emulated for the configured machine."""

from __future__ import annotations

from collections.abc import Sequence

from appliance.coordinator.step_results import StepResult
from waferstream.machine.attribution import TimedSteps

SMOOTHING = 0.4  # weight of the newest measurement, the vendor's


class StepRate:
    """Samples per second of a loop: smoothed (``rate``) and over all steps (``global_rate``)."""

    def __init__(self) -> None:
        self.rate = 0.0
        self._samples = 0
        self._seconds = 0.0

    def add(self, samples: int, elapsed_s: float) -> None:
        """Add one measurement."""
        newest = samples / elapsed_s
        first = self._samples == 0
        self.rate = newest if first else SMOOTHING * newest + (1 - SMOOTHING) * self.rate
        self._samples += samples
        self._seconds += elapsed_s

    @property
    def global_rate(self) -> float:
        return self._samples / self._seconds if self._seconds else 0.0

    @property
    def elapsed_s(self) -> float:
        """Time spent in steps, measured on this host."""
        return self._seconds


class Profiler:
    """Measured rate and emulated timing of a loop."""

    def __init__(self) -> None:
        self.rate_tracker = StepRate()
        self.timed = TimedSteps()

    def add(self, results: Sequence[StepResult], batch_size: int, elapsed_s: float) -> None:
        """Add the results of steps that ran in one job."""
        self.rate_tracker.add(batch_size * len(results), elapsed_s)
        self.timed.add(result.timing for result in results if result.timing)

    @property
    def emulated_rate(self) -> float:
        """Samples per second of the emulated machine so far."""
        return self.timed.samples_per_s
