"""Made-up points of GPU curves."""

from __future__ import annotations

from waferstream.baselines.gpu import GpuMemory, GpuPoint


class MadeUpPoint(GpuPoint):
    """A GPU point that fits where it has a rate."""

    @property
    def fits(self) -> bool:
        return self.samples_per_s > 0


def gpu_points(rates: dict[int, float]) -> tuple[GpuPoint, ...]:
    """Return points of a made-up GPU curve; a rate of 0 does not fit."""
    return tuple(
        MadeUpPoint(count, rate, 0.0, 0.0, GpuMemory(0, 0, 0, 0)) for count, rate in rates.items()
    )
