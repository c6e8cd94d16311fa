"""Made-up points of GPU curves."""

from __future__ import annotations

from tests.support.reports.summaries import INTERVAL
from waferstream.baselines.gpu.curve import GpuMemory, GpuPoint, Kind
from waferstream.machine.energy import Footprint
from waferstream.reports.curve.result import GpuCurve


class MadeUpPoint(GpuPoint):
    """A GPU point that fits where it has a rate."""

    @property
    def fits(self) -> bool:
        return self.samples_per_s > 0


def made_up_curve(gpu: str, kind: Kind, rates: dict[int, float]) -> GpuCurve:
    """Return a made-up GPU curve; a rate of 0 does not fit, and none is extrapolated."""
    points = tuple(
        MadeUpPoint(count, rate, 0.0, 0.0, GpuMemory(0, 0, 0, 0)) for count, rate in rates.items()
    )
    footprint = Footprint(kwh=0.0123, kg_co2e=0.006, usd=0.5)
    footprints = tuple(footprint if point.fits else None for point in points)
    intervals, reasons = (INTERVAL,) * len(points), ("",) * len(points)
    return GpuCurve(gpu, kind, points, footprints, intervals, reasons)
