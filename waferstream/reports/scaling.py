"""How the pace of one training grows with the number of systems."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from waferstream.reports.summary import Emulated, Measured, RunSummary
from wsc.core.errors import WaferStreamError


@dataclass(frozen=True)
class Point:
    """A completed training on ``num_csx`` systems.

    Efficiencies are rates over the ideal, which grows in proportion to ``num_csx`` from the point
    of fewest systems on.
    """

    num_csx: int
    weights_sha256: str
    measured: Measured
    emulated: Emulated
    measured_efficiency: float = 1.0
    emulated_efficiency: float = 1.0

    def over(self, first: Point) -> Point:
        """The same, with efficiencies relative to ``first``."""
        growth = self.num_csx / first.num_csx
        return replace(
            self,
            measured_efficiency=_ratio(self.measured, first.measured) / growth,
            emulated_efficiency=_ratio(self.emulated, first.emulated) / growth,
        )

    def to_json(self) -> dict[str, Any]:
        """As plain data; the host is that of the whole experiment."""
        emulated, measured = asdict(self.emulated), asdict(self.measured)
        del measured["host"]
        return {
            "num_csx": self.num_csx,
            "weights_sha256": self.weights_sha256,
            "measured": {**measured, "efficiency": self.measured_efficiency},
            "emulated": {**emulated, "efficiency": self.emulated_efficiency},
        }


def _ratio(pace: Measured | Emulated, other: Measured | Emulated) -> float:
    return pace.samples_per_s / other.samples_per_s


@dataclass(frozen=True)
class Scaling:
    """The same training on different numbers of systems, fewest first."""

    run: RunSummary  # of the fewest systems; model, batch and steps are those of all
    points: tuple[Point, ...]

    @classmethod
    def of(cls, runs: Sequence[RunSummary]) -> Scaling:
        """Compare runs; WaferStreamError names one that is not a completed training."""
        runs = sorted(runs, key=lambda run: run.num_csx)
        points = [_point(run) for run in runs]
        return cls(runs[0], tuple(point.over(points[0]) for point in points))

    @property
    def weights_sha256(self) -> str | None:
        """The one digest with which all runs end; None if they disagree."""
        digests = {point.weights_sha256 for point in self.points}
        return digests.pop() if len(digests) == 1 else None


def _point(run: RunSummary) -> Point:
    if (
        run.status != "completed"
        or run.weights_sha256 is None
        or run.measured is None
        or run.emulated is None
    ):
        raise WaferStreamError(
            f"the run with num_csx={run.num_csx} is no completed training",
            rule="it trains, and ends with weights and with measured and emulated times",
        )
    return Point(run.num_csx, run.weights_sha256, run.measured, run.emulated)
