"""What users and owners of a cluster see of a schedule, in figures."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean, median, quantiles
from typing import Any

from waferstream.management.schedule.simulate import Run
from waferstream.management.schedule.trace import TraceJob

_SHORTEST_S = 10.0
"""Run time below which a slowdown counts as one of a job of this length (Feitelson's bound)."""


@dataclass(frozen=True)
class Figures:
    """Figures of one schedule of a trace."""

    mean_turnaround_s: float
    mean_wait_s: float
    """To the first start."""
    mean_without_systems_s: float
    """The same, with pauses."""
    longest_wait_s: float
    utilisation: float
    """Share of all systems, until the last end, that the work of the trace takes as asked for."""
    worst_slowdown: float
    """The mean bounded slowdown of the user with the highest."""

    def beside(self, other: Figures) -> dict[str, float]:
        """Return these figures as parts of the other ones; of utilisation, the difference."""
        mine, others = asdict(self), asdict(other)
        ratios = {name: mine[name] / max(1e-9, others[name]) for name in mine}
        return ratios | {"utilisation": self.utilisation - other.utilisation}


def figures(
    trace: Sequence[TraceJob],
    starts_s: Iterable[float],
    ends_s: Iterable[float],
    without_systems_s: Iterable[float],
    systems: int,
) -> Figures:
    """Return the figures of a schedule of a trace."""
    ends_s = list(ends_s)
    turnarounds_s = [end_s - job.submitted_s for job, end_s in zip(trace, ends_s, strict=True)]
    waits_s = [start_s - job.submitted_s for job, start_s in zip(trace, starts_s, strict=True)]
    slowdowns: dict[str, list[float]] = {}
    for job, turnaround_s in zip(trace, turnarounds_s, strict=True):
        slowdown = max(1.0, turnaround_s / max(job.run_s, _SHORTEST_S))
        slowdowns.setdefault(job.user, []).append(slowdown)
    work_s = sum(job.systems * job.run_s for job in trace)
    return Figures(
        mean_turnaround_s=fmean(turnarounds_s),
        mean_wait_s=fmean(waits_s),
        mean_without_systems_s=fmean(without_systems_s),
        longest_wait_s=max(waits_s),
        utilisation=work_s / systems / max(ends_s),
        worst_slowdown=max(map(fmean, slowdowns.values())),
    )


def breathing(trace: Sequence[TraceJob], runs: Sequence[Run], systems: int) -> Figures:
    """Return the figures of jobs that ran on the emulated clock."""
    return figures(
        trace,
        (run.started_s for run in runs),
        (run.ended_s for run in runs),
        (run.waited_s for run in runs),
        systems,
    )


def expected_starts(runs: Sequence[Run]) -> dict[str, Any]:
    """Return how many jobs started inside the interval that they were told when they came."""
    told = [(run, run.expected) for run in runs if run.expected is not None]
    inside = sum(e.earliest_s <= run.started_s <= e.latest_s for run, e in told)
    widths_s = [e.latest_s - e.earliest_s for _, e in told] or [0.0]
    return {
        "jobs_that_waited": len(told),
        "inside": inside / max(1, len(told)),
        "inside_with_those_that_started_at_once": (len(runs) - len(told) + inside) / len(runs),
        "median_width_s": median(widths_s),
    }


def decision_times(seconds: Sequence[float]) -> dict[str, float]:
    """Return the median and the 99th percentile of decisions, in milliseconds."""
    percentiles = quantiles(seconds, n=100)
    return {"count": len(seconds), "p50_ms": 1e3 * percentiles[49], "p99_ms": 1e3 * percentiles[98]}
