"""The scaling experiment in words and rows, for the terminal and for the page."""

from __future__ import annotations

from waferstream.reports.scaling import Point, Scaling
from wsc.core.tables import aligned
from wsc.core.units import format_count, format_ps, format_rate

COLUMNS = (
    "systems",
    "emulated samples/s",
    "efficiency",
    "emulated step",
    "compute",
    "largest loss",
    "measured samples/s",
    "weights SHA-256",
)


def rows(scaling: Scaling) -> list[tuple[str, ...]]:
    """One row of cells for each point, under ``COLUMNS``."""
    return [_row(point) for point in scaling.points]


def _row(point: Point) -> tuple[str, ...]:
    shares = point.emulated.attribution_ps.shares()
    compute = shares.pop("compute")
    cause, share = max(shares.items(), key=lambda item: item[1])
    return (
        str(point.num_csx),
        format_rate(point.emulated.samples_per_s, digits=3),
        f"{point.emulated_efficiency:.1%}",
        format_ps(point.emulated.step_ps),
        f"{compute:.1%}",
        f"{cause} {share:.1%}",
        format_rate(point.measured.samples_per_s, digits=3),
        point.weights_sha256[:12],
    )


def table(scaling: Scaling) -> str:
    """The rows as aligned text."""
    return "\n".join(aligned([COLUMNS, *rows(scaling)], left=()))


def title(scaling: Scaling) -> str:
    """What was trained, in one line."""
    run = scaling.run
    return (
        f"{run.model.name}, {format_count(run.model.parameters)} parameters, "
        f"batch {run.batch_size}, {run.last_step - run.first_step + 1} steps"
    )


def verdict(scaling: Scaling) -> str:
    """Whether all runs end with the same weights, in one sentence."""
    if scaling.weights_sha256 is None:
        return "One answer: NO. The runs end with different weights."
    return (
        f"One answer: yes. All {len(scaling.points)} runs end with the same weights, bit for bit."
    )
