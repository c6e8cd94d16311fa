"""Studies and searches as text: what is told before they run, and what they found."""

from __future__ import annotations

from collections.abc import Mapping

from waferstream.core.units import aligned, folded, format_ps, format_rate, format_short
from waferstream.machine.intervals import Interval
from waferstream.reports.amounts import format_duration, format_energy
from waferstream.reports.curve.result import CurvePoint, RefusedPoint
from waferstream.reports.intervals import INTERVAL_NOTE, evidence_of
from waferstream.studies.candidates import Candidate, SearchResult
from waferstream.studies.grid import Grid
from waferstream.studies.result import StudyResult, StudyRow, rate_of, series_of

_MOST_ROWS = 50
_NOTHING = "-"


def told(grid: Grid) -> str:
    """Return what a study will compute, before it does."""
    captures = 1
    for axis in grid.axes:
        if axis.key.decides_capture:
            captures *= len(axis.values)
    models = f", of up to {captures:,} models, some seconds each" if captures > 1 else ""
    return f"Study: {grid.size_text}{models}."


def study_text(result: StudyResult, width: int | None = None) -> str:
    """Return the rows as a table with notes; of many, the first ones.

    Args:
        result: The study.
        width: Characters of a line; None for any number.
    """
    shown = result.rows[:_MOST_ROWS]
    efficiency = _efficiency_name(result)
    cells = [_cells(row, result, efficiency) for row in shown]
    names = list(dict.fromkeys(name for row in cells for name in row))
    table = [names, *([row.get(name, _NOTHING) for name in names] for row in cells)]
    lines = [result.title, "", *folded(table, width)]
    if len(shown) < len(result.rows):
        lines.append(f"{len(shown):,} of {len(result.rows):,} rows; files of --out have all.")
    notes = [*_refusals(result), INTERVAL_NOTE, result.times.text(len(result.rows))]
    return "\n".join([*lines, "", *notes])


def _cells(row: StudyRow, result: StudyResult, efficiency: str | None) -> Mapping[str, str]:
    keys = {name: _said(row.values[name]) for name in result.varying}
    if isinstance(row.point, RefusedPoint):
        return {**keys, "step": "impossible"}
    point, prediction = row.point, row.point.prediction
    assert prediction is not None, "a study simulates"
    rate = rate_of(point)
    return {
        **keys,
        "step": format_ps(point.emulated.step_ps),
        result.unit: format_short(rate),
        "90 %": " to ".join(map(format_short, point.interval.around(rate)))
        if isinstance(point.interval, Interval)
        else "unknown",
        "micro-batch": f"{point.micro_batch_size:,}",
        "streams": f"{prediction.num_rounds:,}",
        **({efficiency: f"{point.efficiency:.1%}"} if efficiency else {}),
        "of peak": f"{prediction.utilisation:.1%}",
        "kW": _NOTHING if point.energy is None else format_rate(point.energy.power_kw, 3),
        **_bill(point),
        "evidence": evidence_of(point.interval) or _NOTHING,
    }


def _efficiency_name(result: StudyResult) -> str | None:
    """Return the head of the column of efficiencies, which are over the first of their curves."""
    if "num_csx" not in result.varying:
        return None
    curves = series_of(result.rows, "num_csx").values()
    counts = ([row.num_csx for row in rows if not _is_refused(row)] for rows in curves)
    firsts = {min(found) for found in counts if found}
    return f"efficiency from {min(firsts)}" if len(firsts) == 1 else "efficiency from first"


def _is_refused(row: StudyRow) -> bool:
    return isinstance(row.point, RefusedPoint)


def _bill(point: CurvePoint) -> Mapping[str, str]:
    """Return the cells of the token budget; without one, money of a million tokens."""
    if point.bill is None:
        energy = point.energy
        known = energy and (energy.per_million_tokens or energy.per_million_samples)
        per = "tok" if energy and energy.per_million_tokens else "samples"
        return {f"USD/M{per}": format_short(known.usd)} if known else {}
    return {
        "training": format_duration(point.bill.duration_s),
        "energy": format_energy(point.bill.footprint.kwh),
        "USD": format_short(point.bill.footprint.usd),
    }


def _refusals(result: StudyResult) -> list[str]:
    """Return each reason why there is no point, with the number of its rows."""
    counts: dict[str, int] = {}
    for row in result.rows:
        if isinstance(row.point, RefusedPoint):
            reason = f"{row.point.reason} [{row.point.code}]"
            counts[reason] = counts.get(reason, 0) + 1
    return [f"Impossible, {count:,} of the rows: {reason}." for reason, count in counts.items()]


def _said(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def search_text(result: SearchResult, most: int = 5) -> str:
    """Return what a search found: the best candidates, how to set the first, and what was tried.

    Args:
        result: The search.
        most: Candidates to name; those that differ in the micro-batch alone count once.
    """
    goal, best = result.goal, result.candidates[0]
    rows: list[tuple[str, ...]] = [("", goal.objective, *_CANDIDATE)]
    for rank, each in enumerate(result.distinct(most), start=1):
        rows.append((f"{rank}", f"{goal.value(each.bill):,.4g} {goal.unit}", *_candidate(each)))
    low, high = goal.range_of(best)
    known = "" if low is None or high is None else f" (90 %: {low:,.4g} to {high:,.4g})"
    return "\n".join(
        [
            f"Least {goal.objective} for {format_short(best.bill.tokens)} tokens: "
            f"{goal.value(best.bill):,.4g} {goal.unit}{known}",
            "",
            *aligned(rows),
            "",
            f"--num_csx {best.point.num_csx} --batch_size {best.batch_size} "
            f"--micro_batch_size {best.point.micro_batch_size} sets the first.",
            *_coverage(result),
        ]
    )


_CANDIDATE = ("system", "systems", "batch", "micro-batch", "streams", "training", "energy", "USD")


def _candidate(each: Candidate) -> tuple[str, ...]:
    point, footprint = each.point, each.bill.footprint
    assert point.prediction is not None, "a search simulates"
    machine = ", ".join(f"{name} {value}" for name, value in each.values.items())
    return (
        machine or each.machine,
        f"{point.num_csx:,}",
        f"{each.batch_size:,}",
        f"{point.micro_batch_size:,}",
        f"{point.prediction.num_rounds:,}",
        format_duration(each.bill.duration_s),
        format_energy(footprint.kwh),
        format_short(footprint.usd),
    )


def _coverage(result: SearchResult) -> list[str]:
    """Return how much was tried, what was not, and what no search here knows."""
    tried = f"{result.tried:,} of {result.possible:,} candidates tried in {result.total_s:.1f} s"
    how = (
        "all of them"
        if result.is_exhaustive
        else "NOT exhaustive: powers of two of systems first, then all around the best"
    )
    out = {**result.refused, **{f"beyond the limit of {k}": n for k, n in result.exceeded.items()}}
    left = ", ".join(f"{count:,} {reason}" for reason, count in out.items())
    return [
        f"{tried}: {how}.",
        *([f"Left out: {left}."] if left else []),
        "Streams: how often the weights stream in a step. Start-up is not counted. That another "
        "batch may need other numbers of tokens is not modelled.",
    ]
