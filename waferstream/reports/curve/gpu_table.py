"""Modelled throughput of GPU clusters as a table: one row for each count, one column a curve."""

from __future__ import annotations

from waferstream.core.units import aligned, format_rate
from waferstream.reports.curve.result import GpuComparison, GpuCurve

TITLE = "Samples/s of GPU clusters with the same model and batch, modelled"
NOTHING = "-"
"""The cell of a count at which the model does not fit, or a GPU would have no sample."""


def gpu_table(gpus: GpuComparison) -> list[tuple[str, ...]]:
    """Return a header and one row for each count of GPUs at which a curve has a point.

    Curves without any point are left out; the note of the comparison names them.
    """
    curves = [curve for curve in gpus.curves if curve.fitting]
    rates = [_rates(curve) for curve in curves]
    counts = sorted({count for rate in rates for count in rate})
    rows = [(f"{count:,}", *(rate.get(count, NOTHING) for rate in rates)) for count in counts]
    return [("GPUs", *(curve.name for curve in curves)), *rows]


def gpu_text(gpus: GpuComparison) -> str:
    """Return the table as aligned lines with its note; the note alone without a curve."""
    header, *rows = gpu_table(gpus)
    if not rows:
        return gpus.note
    return "\n".join([TITLE, *aligned([header, *rows]), gpus.note])


def _rates(curve: GpuCurve) -> dict[int, str]:
    return {point.gpus: format_rate(point.samples_per_s) for point in curve.fitting}
