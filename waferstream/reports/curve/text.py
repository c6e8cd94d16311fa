"""A curve for people: headline, table and footnotes as text."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from waferstream.core.units import (
    aligned,
    counted,
    folded,
    format_bytes,
    format_count,
    format_ps,
    format_rate,
    format_short,
    seconds,
)
from waferstream.machine.attribution import CAUSES, OVERHEAD_NOTE
from waferstream.machine.intervals import SHARES, Interval, Share
from waferstream.reports.amounts import format_duration, format_energy
from waferstream.reports.curve.result import (
    CurvePoint,
    CurveResult,
    GpuComparison,
    GpuCurve,
    PointDetail,
    TrainingInfo,
    sweet_spots,
)
from waferstream.reports.intervals import evidence_of, interval_notes, range_text

Column = Callable[[CurvePoint], str | None]
"""The text of a cell; None where the point has no such value."""

_VISIBLE_SHARE = 0.0005  # a cause with a smaller share at every point has no column
MOST_ROWS = 25
"""Rows of a table on a terminal."""
MOST_SPOTS = 8
"""Numbers of systems named as efficient ones."""
_WORTH_SAYING = 1.1  # less is within the error of a prediction

TITLE = "Samples/s of GPU clusters with the same model and batch, modelled"
INTERVAL_TITLE = "90 % intervals of these rates"
FOOTPRINT_TITLE = "kWh / USD of 1M tokens there, with hosts, switches and cooling"
NOTHING = "-"
"""The cell of a count at which the model does not fit, or a GPU would have no sample."""


def headline(result: CurveResult) -> str:
    """Return model, batch, steps and machine in one line."""
    sequence = f" of {result.tokens_per_sample:,}" if result.tokens_per_sample else ""
    each = " for each system" if result.weak else ""
    unit = "sequence" if result.tokens_per_sample else "sample"
    steps = "" if result.training is None else f", {counted(result.training.num_steps, 'step')}"
    return (
        f"{result.model.name}, {format_count(result.model.parameters)} parameters, "
        f"batch of {counted(result.batch_size, unit)}{sequence}{each}{steps}, on {result.label}"
    )


def curve_table(result: CurveResult) -> list[tuple[str, ...]]:
    """Return a header and a row for each number of systems; columns without values are left out."""
    columns = {
        name: [column(point) for point in result.points]
        for name, column in _columns(result).items()
    }
    filled = {name: cells for name, cells in columns.items() if any(cells)}
    rows = zip(*([cell or "-" for cell in cells] for cells in filled.values()), strict=True)
    by_count = dict(zip((point.num_csx for point in result.points), rows, strict=True))
    for refused in result.refused:
        empty = ["-"] * (len(filled) - 2)
        by_count[refused.num_csx] = (f"{refused.num_csx:,}", "impossible", *empty)
    return [tuple(filled), *(by_count[count] for count in sorted(by_count))]


def table_text(
    result: CurveResult, width: int | None = None, beside: CurveResult | None = None
) -> str:
    """Return the table, of a long one some rows, and its footnotes.

    Args:
        result: The curve.
        width: Characters of a line; None for any number.
        beside: The curve whose table stands above; its footnotes are not repeated.
    """
    shown = shown_points(result)
    lines = folded(curve_table(replace(result, points=tuple(shown))), width)
    if len(shown) < len(result.points):
        lines.append(f"{len(shown)} of {len(result.points)} rows; the JSON file has all.")
    text = "\n".join([*lines, *own_footnotes(result, beside)])
    return text if result.gpus is None else f"{text}\n\n{gpu_text(result.gpus)}"


def shown_points(result: CurveResult) -> list[CurvePoint]:
    """Return the points of a terminal's table, at most MOST_ROWS.

    They are the ends, the point in detail, sweet spots, powers of two, and others evenly between.
    """
    points = result.points
    if len(points) <= MOST_ROWS:
        return list(points)
    detailed = [] if result.simulation is None else [result.simulation.detail.num_csx]
    step = len(points) / MOST_ROWS
    wanted = [
        points[0].num_csx,
        points[-1].num_csx,
        *detailed,
        *(point.num_csx for point in points if point.num_csx.bit_count() == 1),
        *sweet_spots(points)[:MOST_SPOTS],
        *(points[int(index * step)].num_csx for index in range(MOST_ROWS)),
    ]
    kept = set(list(dict.fromkeys(wanted))[:MOST_ROWS])
    return [point for point in points if point.num_csx in kept]


def _columns(result: CurveResult) -> Mapping[str, Column]:
    return {
        "systems": lambda point: f"{point.num_csx:,}",
        "micro-batch": lambda point: point.micro_batch_size and f"{point.micro_batch_size:,}",
        "accumulation steps": lambda point: point.prediction and f"{point.prediction.num_rounds:,}",
        "step": lambda point: format_ps(point.emulated.step_ps),
        "samples/s": lambda point: format_rate(point.emulated.samples_per_s),
        **{name: _range_column(share) for share, name in SHARES.items()},
        "tokens/s": _tokens_per_s,
        "kW": lambda point: point.energy and format_rate(point.energy.power_kw, 3),
        **_footprint_columns(result),
        "PFLOP/s": lambda p: (
            p.prediction and format_rate(p.prediction.flops_per_s / 1e15, digits=3)
        ),
        "of peak": lambda point: point.prediction and f"{point.prediction.utilisation:.1%}",
        "efficiency": lambda point: f"{point.efficiency:.1%}",
        **{cause: _share_of(cause) for cause in _visible_causes(result)},
        "evidence": lambda point: evidence_of(point.interval),
        "SRAM peak": lambda p: p.prediction and format_bytes(p.prediction.sram_peak_bytes),
        "recomputed": lambda point: point.prediction and f"{point.prediction.recomputed_segments}",
        "SwarmX nodes": lambda point: point.prediction and f"{point.prediction.swarmx_nodes:,}",
        "training": lambda point: point.bill and format_duration(point.bill.duration_s),
        "energy": lambda point: point.bill and format_energy(point.bill.footprint.kwh),
        "USD": lambda point: point.bill and format_short(point.bill.footprint.usd),
        "measured samples/s": lambda p: p.run and format_rate(p.run.measured.samples_per_s, 3),
        "weights SHA-256": lambda point: point.run and point.run.weights_sha256[:12],
    }


def _tokens_per_s(point: CurvePoint) -> str | None:
    if point.prediction is None or point.prediction.tokens_per_s is None:
        return None
    return format_short(point.prediction.tokens_per_s)


def _range_column(share: Share) -> Column:
    """Return the column of the samples/s that a share of measured values lies between."""

    def cell(point: CurvePoint) -> str | None:
        if not isinstance(point.interval, Interval):
            return None
        return range_text(point.interval.around(point.emulated.samples_per_s, share))

    return cell


def _share_of(cause: str) -> Column:
    return lambda point: f"{point.emulated.attribution_ps.shares()[cause]:.1%}"


def _visible_causes(result: CurveResult) -> list[str]:
    shares = [point.emulated.attribution_ps.shares() for point in result.points]
    return [name for name in CAUSES if any(each[name] >= _VISIBLE_SHARE for each in shares)]


def _footprint_columns(result: CurveResult) -> Mapping[str, Column]:
    """Return the columns of what a million tokens take, or samples of a model without tokens."""
    of_tokens = result.tokens_per_sample is not None
    unit = "tok" if of_tokens else "sample"

    def column(amount: str) -> Column:
        def cell(point: CurvePoint) -> str | None:
            if point.energy is None:
                return None
            million = point.energy.per_million_tokens if of_tokens else None
            return format_rate(getattr(million or point.energy.per_million_samples, amount), 3)

        return cell

    units = {"kwh": "kWh", "kg_co2e": "kg CO2e", "usd": "USD"}
    return {f"{name}/M{unit}": column(amount) for amount, name in units.items()}


def footnotes(result: CurveResult) -> list[str]:
    """Return the sentences that define the columns and state the accuracy."""
    notes = [
        "Step, samples/s and efficiency are emulated. Efficiency: samples/s over ideal scaling "
        "from the first row.",
        "Shares of the busiest systems' step: "
        + "; ".join(f"{cause}, {CAUSES[cause]}" for cause in _visible_causes(result))
        + ".",
    ]
    if result.packing is not None:
        notes.append(result.packing.report())
    if result.training is not None:
        notes.append(
            "Measured samples/s: on this host, whose cores all emulated systems share, so it need "
            "not grow with their number."
        )
    notes += _advice(result)
    for reason, counts in _refusals(result).items():
        named = ", ".join(f"{count:,}" for count in counts)
        notes.append(f"Impossible with num_csx {named}: {reason}.")
    if result.simulation is not None:
        notes += [
            "PFLOP/s: matrix products and attention, recomputation not counted.",
            *_overflows(result),
            *interval_notes(result.intervals),
            *([result.simulation.overruled] if result.simulation.overruled else []),
            f"{counted(len(result.points), 'point')} in {result.simulation.curve_s:.2f} s.",
        ]
    return notes


def _overflows(result: CurveResult) -> Iterator[str]:
    """Yield for each micro-batch that does not fit what of it has no room."""
    found = {
        point.micro_batch_size: point.prediction.overflow
        for point in result.points
        if point.prediction is not None
    }
    for size, overflow in found.items():
        if overflow is None:
            continue
        missing = {"SRAM": overflow.sram_bytes, "activation servers": overflow.server_bytes}
        named = (
            f"{format_bytes(lacking)} of {place}" for place, lacking in missing.items() if lacking
        )
        yield (
            f"Overflow: micro-batch {size:,} does not fit, and is predicted as if it did. A "
            f"{result.system} lacks {' and '.join(named)}, with everything recomputed and moved "
            f"away that can be; most is on the wafer in {overflow.segment}."
        )


def _refusals(result: CurveResult) -> Mapping[str, Sequence[int]]:
    """Return the numbers of systems without a point by the reason."""
    found: dict[str, list[int]] = {}
    for refused in result.refused:
        found.setdefault(f"{refused.reason} [{refused.code}]", []).append(refused.num_csx)
    return found


def own_footnotes(result: CurveResult, beside: CurveResult | None) -> list[str]:
    """Return the footnotes that the curve beside does not have."""
    said = [] if beside is None else footnotes(beside)
    return [note for note in footnotes(result) if note not in said]


def _advice(result: CurveResult) -> Iterator[str]:
    """Yield where the configuration wastes the machine, with the remedy, and where it does not."""
    for point in result.points:
        filled, made = point.filled, point.prediction
        if filled is None or made is None or filled.speed_up < _WORTH_SAYING:
            continue
        yield (
            f"On {counted(point.num_csx, 'system')}, micro-batch {point.micro_batch_size:,} makes "
            f"{counted(made.num_rounds, 'pass', 'passes')}; {filled.micro_batch_size:,} would make "
            f"{filled.num_rounds:,} and be {filled.speed_up:.1f} times as fast "
            "(csx.performance.micro_batch_size: fill_wafer)."
        )
    if any(p.emulated.attribution_ps.shares()["overhead"] > 0.5 for p in result.points):
        yield OVERHEAD_NOTE
    if spots := sweet_spots(result.points):
        best = sorted(spots, key=lambda count: -_efficiency(result, count))[:MOST_SPOTS]
        named = ", ".join(f"{count:,} ({_efficiency(result, count):.0%})" for count in sorted(best))
        yield f"Sweet spots, where the batch divides well (systems, efficiency): {named}."


def _efficiency(result: CurveResult, num_csx: int) -> float:
    return next(point.efficiency for point in result.points if point.num_csx == num_csx)


def verdict(training: TrainingInfo, num_runs: int) -> str:
    """Return one sentence that says whether all runs end with the same weights."""
    if training.weights_sha256 is None:
        return "Bitwise reproducible: NO. The runs end with different weights."
    return f"Bitwise reproducible: yes. All {num_runs} runs end with the same weights."


def start_up_text(detail: PointDetail) -> str:
    """Return the time to the first step, its interval and its parts in one line."""
    start_up = detail.start_up
    total_s = seconds(start_up.total_ps)
    limits = "interval unknown"
    if isinstance(detail.start_up_interval, Interval):
        low, high = map(format_duration, detail.start_up_interval.around(total_s))
        limits = f"90 %: {low} to {high}"
    return (
        f"{format_duration(total_s)} ({limits}): "
        f"compile {format_duration(seconds(start_up.compile_ps))}, "
        f"initial weights {format_duration(seconds(start_up.initial_weights_ps))}, "
        f"programming {format_duration(seconds(start_up.programming_ps))}"
    )


def gpu_tables(gpus: GpuComparison) -> Mapping[str, list[tuple[str, ...]]]:
    """Return tables by title, of a header and one row for each count of GPUs with a point.

    Curves without any point are left out; the note of the comparison names them.
    """
    curves = [curve for curve in gpus.curves if curve.fitting]
    if not curves:
        return {}
    columns = {TITLE: _rates, INTERVAL_TITLE: _intervals, FOOTPRINT_TITLE: _footprints}
    return {title: _gpu_table(curves, column) for title, column in columns.items()}


def _gpu_table(
    curves: Sequence[GpuCurve], column: Callable[[GpuCurve], Mapping[int, str]]
) -> list[tuple[str, ...]]:
    columns = [column(curve) for curve in curves]
    counts = sorted({count for cells in columns for count in cells})
    rows = [(f"{count:,}", *(cells.get(count, NOTHING) for cells in columns)) for count in counts]
    return [("GPUs", *(curve.name for curve in curves)), *rows]


def gpu_text(gpus: GpuComparison) -> str:
    """Return the tables as aligned lines with their note; the note alone without a curve."""
    lines = [line for title, rows in gpu_tables(gpus).items() for line in (title, *aligned(rows))]
    return "\n".join([*lines, gpus.note])


def _rates(curve: GpuCurve) -> Mapping[int, str]:
    return {
        point.gpus: format_rate(point.samples_per_s) + ("*" if reason else "")
        for point, reason in zip(curve.points, curve.extrapolated, strict=True)
        if point.fits
    }


def _intervals(curve: GpuCurve) -> Mapping[int, str]:
    return {
        point.gpus: range_text(interval.around(point.samples_per_s))
        if isinstance(interval, Interval)
        else "unknown"
        for point, interval in zip(curve.points, curve.intervals, strict=True)
        if point.fits
    }


def _footprints(curve: GpuCurve) -> Mapping[int, str]:
    return {
        point.gpus: f"{format_rate(million.kwh, 3)} / {format_rate(million.usd, 3)}"
        for point, million in zip(curve.points, curve.per_million_tokens, strict=True)
        if million is not None
    }
