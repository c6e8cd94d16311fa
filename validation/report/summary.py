"""Errors of families and whether they meet the goals, as values and as tables."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import Literal, TypeVar

from validation.families.prediction import Compared
from validation.report.tables import Table, number, percent, signed_percent
from validation.rows.row import Evidence, Row, Use
from waferstream.machine.intervals import SHARES, AnyInterval, Unknown

Item = TypeVar("Item")
Key = TypeVar("Key", bound=Hashable)


Mark = Use | Literal["unused"]
"""The use of a row; ``unused`` for a calibration row on which no fitted constant rests."""


def mark_of(row: Row, calibrated: Collection[str]) -> Mark:
    """Return the mark of a row, given the ids of those that fitted constants rest on."""
    is_unused = row.use == "calibration" and row.row_id not in calibrated
    return "unused" if is_unused else row.use


def grouped(items: Iterable[Item], key: Callable[[Item], Key]) -> dict[Key, list[Item]]:
    """Return items by key; keys in the order of their first items."""
    groups: dict[Key, list[Item]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups


@dataclass(frozen=True)
class Errors:
    """Absolute relative errors of some rows; 0.1 is 10 %."""

    count: int
    mean: float
    median: float
    max: float
    worst_row: str

    @classmethod
    def of(cls, compared: Sequence[Compared]) -> Errors:
        """Return the errors of at least one row."""
        worst = max(compared, key=lambda one: abs(one.error))
        errors = [abs(one.error) for one in compared]
        return cls(len(errors), fmean(errors), median(errors), max(errors), worst.row.row_id)


@dataclass(frozen=True)
class Summary:
    """Errors of the rows of a family with the same evidence and mark."""

    family: str
    evidence: Evidence
    mark: Mark
    errors: Errors


def summaries(compared: Sequence[Compared], calibrated: Collection[str]) -> tuple[Summary, ...]:
    """Return one summary for each family, evidence and mark."""
    groups = grouped(
        compared, lambda one: (one.family, one.row.evidence, mark_of(one.row, calibrated))
    )
    return tuple(Summary(*key, Errors.of(rows)) for key, rows in sorted(groups.items()))


@dataclass(frozen=True)
class Goal:
    """Largest error that some families, together, may have on validation rows."""

    name: str
    families: str
    """First word or words of their names."""
    mean: float
    worst: float | None = None

    def errors(self, compared: Iterable[Compared]) -> Errors | None:
        """Return the errors on validation rows; None if there are none."""
        rows = [one for one in validated(compared) if belongs(one.family, self.families)]
        return Errors.of(rows) if rows else None

    def met_by(self, errors: Errors) -> bool:
        """Return whether mean and worst error are small enough."""
        return errors.mean <= self.mean and (self.worst is None or errors.max <= self.worst)

    def verdict(self, errors: Errors | None) -> str:
        """Return ``met``, ``missed`` or, without errors, ``not measured``."""
        if errors is None:
            return "not measured"
        return "met" if self.met_by(errors) else "missed"

    def __str__(self) -> str:
        worst = "" if self.worst is None else f", worst at most {percent(self.worst, 0)}"
        return f"mean at most {percent(self.mean, 0)}{worst}"


def validated(compared: Iterable[Compared]) -> list[Compared]:
    """Return the rows marked validation."""
    return [one for one in compared if one.row.use == "validation"]


def belongs(family: str, families: str) -> bool:
    """Return whether ``family`` has this name or, like ``training CS-2``, begins with it."""
    return family == families or family.startswith(f"{families} ")


GOALS = (
    Goal("collectives", "collectives", 0.02),
    Goal("single PE", "single PE", 0.10),
    Goal("GEMM", "GEMM", 0.10),
    Goal("GEMV", "GEMV", 0.10),
    Goal("training CS-2", "training CS-2", 0.04, worst=0.12),
    Goal("training CS-3", "training CS-3", 0.04, worst=0.12),
    Goal("set-up and compile", "start-up", 0.15),
    Goal("prefill", "prefill", 0.10),
    Goal("decode", "decode", 0.10),
    Goal("inference service", "inference service", 0.20, worst=0.20),
    Goal("GPU clusters, training", "GPU training", 0.05),
    Goal("GPU clusters, inference", "GPU inference", 0.10),
)
"""Errors that a model must not exceed to be cited."""


def row_table(
    compared: Sequence[Compared], intervals: Mapping[str, AnyInterval] | None = None
) -> Table:
    """Return a table with one line for each row, with its interval where those are given by id."""
    header = ("row", "use", "evidence", "label", "predicted", "published", "unit", "error")
    lines = [
        (
            one.row.row_id,
            one.row.use,
            one.row.evidence,
            one.row.label,
            number(one.predicted),
            number(one.published),
            one.row.unit,
            signed_percent(one.error),
        )
        for one in compared
    ]
    if intervals is None:
        return Table(header, lines, frozenset({4, 5, 7}))
    factors = [_factors(intervals[one.row.row_id]) for one in compared]
    return Table(
        (*header, *SHARES.values()),
        [(*line, *both) for line, both in zip(lines, factors, strict=True)],
        frozenset({4, 5, 7, 8, 9}),
    )


def _factors(interval: AnyInterval) -> tuple[str, str]:
    """Return the factors of both intervals, as text."""
    if isinstance(interval, Unknown):
        return "unknown", "unknown"
    return number(interval.half), number(interval.nine_tenths)


def summary_table(summaries: Sequence[Summary]) -> Table:
    """Return a table with one line for each summary."""
    return Table(
        ("family", "evidence", "mark", "rows", "mean", "median", "max", "worst row"),
        [
            (
                one.family,
                one.evidence,
                one.mark,
                str(one.errors.count),
                percent(one.errors.mean),
                percent(one.errors.median),
                percent(one.errors.max),
                one.errors.worst_row,
            )
            for one in summaries
        ],
        frozenset({3, 4, 5, 6}),
    )


def goal_table(goals: Sequence[tuple[Goal, Errors | None]]) -> Table:
    """Return a table with one line for each goal."""
    return Table(
        ("goal", "limit", "rows", "mean", "worst", "verdict"),
        [(goal.name, str(goal), *_numbers(errors), goal.verdict(errors)) for goal, errors in goals],
        frozenset({2, 3, 4}),
    )


def error_table(compared: Sequence[Compared], families: Sequence[str]) -> Table:
    """Return the errors on validation rows of every family, with goals met, missed or absent.

    Families that share a goal follow the line of their goal; families without goal are grouped. A
    family without validation rows says which rows it has, since its error proves nothing.
    """
    by_family = grouped(compared, lambda one: one.family)
    shown = [family for family in families if family in by_family]
    lines: list[tuple[str, ...]] = []
    for goal, members in grouped(shown, _goal_of).items():
        if goal is not None:
            rows = [one for family in members for one in by_family[family]]
            lines.append(
                _error_line(f"**{goal.name}**", rows, f"{goal}: {goal.verdict(goal.errors(rows))}")
            )
        lines += [
            _error_line(family, by_family[family], _remark(by_family[family], goal))
            for family in members
            if goal is None or family != goal.families
        ]
    header = ("family", "rows", "mean error", "worst", "worst row", "goal")
    return Table(header, lines, frozenset({1, 2, 3}))


def _goal_of(family: str) -> Goal | None:
    return next((goal for goal in GOALS if belongs(family, goal.families)), None)


def _remark(compared: Sequence[Compared], goal: Goal | None) -> str:
    """Return why a family has no errors, or that it has no goal."""
    if validated(compared):
        return "no goal" if goal is None else ""
    uses = grouped(compared, lambda one: one.row.use)
    return "not validated: " + ", ".join(f"{len(rows)} {use}" for use, rows in uses.items())


def _error_line(name: str, compared: Sequence[Compared], remark: str) -> tuple[str, ...]:
    rows = validated(compared)
    if not rows:
        return name, *_numbers(None), "-", remark
    errors = Errors.of(rows)
    return name, *_numbers(errors), errors.worst_row, remark


def _numbers(errors: Errors | None) -> tuple[str, str, str]:
    if errors is None:
        return "0", "-", "-"
    return str(errors.count), percent(errors.mean), percent(errors.max)
