"""The fidelity report: what was replayed, on which code and constants; as text and as data."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import Any

from validation.families.replay import Family
from validation.families.replays import Compared, Replays
from validation.fit.constants import Constant, constants
from validation.report.summary import GOALS, Errors, Goal, Summary, grouped, summaries
from validation.report.tables import aligned, number, percent, signed_percent
from validation.rows.row import Row, check_unique, read_rows
from validation.rows.what import what
from waferstream.reports.host import Host, describe_host, git_commit

_ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Source:
    """A file of reference rows."""

    name: str
    rows: int
    sha256: str


@dataclass(frozen=True)
class Report:
    """Every row of some files, replayed."""

    sources: tuple[Source, ...]
    replays: Replays
    families: tuple[str, ...]
    """Names of the families that were asked, in order."""
    commit: str | None
    host: Host

    @classmethod
    def of(cls, paths: Sequence[Path], families: Sequence[Family]) -> Report:
        """Replay the rows of all files; ConfigError if a file or one of its rows is malformed."""
        files = [(path, read_rows(path)) for path in paths]
        rows = [row for _, rows in files for row in rows]
        check_unique(rows)
        return cls(
            tuple(Source(path.name, len(rows), _digest(path)) for path, rows in files),
            Replays.of(rows, families),
            tuple(dict.fromkeys(family.name for family in families)),
            git_commit(_ROOT),
            describe_host(version("torch")),
        )

    @cached_property
    def summaries(self) -> tuple[Summary, ...]:
        """One for each family, evidence and use, in the order of the families."""
        found = summaries(self.replays.compared)
        return tuple(sorted(found, key=lambda one: self.families.index(one.family)))

    @property
    def by_family(self) -> dict[str, list[Compared]]:
        """Compared rows of each family, in the order of the families."""
        groups = grouped(self.replays.compared, lambda one: one.family)
        return {name: groups[name] for name in self.families if name in groups}

    @property
    def goals(self) -> list[tuple[Goal, Errors | None]]:
        """Every goal with the errors on its validation rows, None if there are none."""
        return [(goal, goal.errors(self.replays.compared)) for goal in GOALS]

    @property
    def missed(self) -> list[tuple[Goal, Errors]]:
        """Goals that are not met."""
        return [(goal, errors) for goal, errors in self.goals if errors and not goal.met_by(errors)]

    @property
    def misfitted(self) -> list[tuple[Constant, str]]:
        """Fitted constants whose source names a row of these files that must not be fitted."""
        banned = {row.row_id for row in self.replays.rows if row.use != "calibration"}
        fitted = [constant for constant in constants() if constant.status == "fitted"]
        return [
            (constant, row_id)
            for constant in fitted
            for row_id in constant.rows
            if row_id in banned
        ]

    def text(self) -> str:
        """Every row, then the errors per family, evidence and use, then the goals."""
        return "\n\n".join(self._paragraphs())

    def as_json(self) -> dict[str, Any]:
        """The same as plain data, and what is needed to repeat it."""
        return {
            "question": "how far are predictions from published measurements",
            "git_commit": self.commit,
            "host": asdict(self.host),
            "sources": [asdict(source) for source in self.sources],
            "families": self.families,
            "constants": [asdict(constant) for constant in constants()],
            "compared": [_compared_json(one) for one in self.replays.compared],
            "not_compared": [
                {**_row_json(one.row, one.family), "reason": one.reason}
                for one in self.replays.listed
            ],
            "failed": [
                {**_row_json(one.row, one.family), "bug": one.bug} for one in self.replays.failed
            ],
            "summaries": [asdict(summary) for summary in self.summaries],
            "goals": [
                {
                    **asdict(goal),
                    "errors": errors and asdict(errors),
                    "met": errors and goal.met_by(errors),
                }
                for goal, errors in self.goals
            ],
        }

    def _paragraphs(self) -> Iterator[str]:
        for family, compared in self.by_family.items():
            yield f"{family}\n{aligned(ROW_HEADER, row_cells(compared), RIGHT_OF_ROW)}"
        if self.replays.listed:
            reasons = [(one.row.row_id, what(one.row), one.reason) for one in self.replays.listed]
            yield f"not compared\n{aligned(('row', 'what', 'reason'), reasons)}"
        for failed in self.replays.failed:
            yield f"BUG on row {failed.row.row_id} ({failed.family or 'no family'}):\n{failed.bug}"
        if self.summaries:
            cells = summary_cells(self.summaries)
            yield f"absolute errors\n{aligned(SUMMARY_HEADER, cells, RIGHT_OF_SUMMARY)}"
        goals = aligned(GOAL_HEADER, goal_cells(self.goals), RIGHT_OF_GOAL)
        yield f"goals, on validation rows\n{goals}"
        yield (
            f"{len(self.replays.compared)} rows compared, {len(self.replays.listed)} not compared,"
            f" {len(self.replays.failed)} failed"
        )


ROW_HEADER = ("row", "use", "evidence", "what", "predicted", "published", "unit", "error")
RIGHT_OF_ROW = frozenset({4, 5, 7})


def row_cells(compared: Sequence[Compared]) -> list[tuple[str, ...]]:
    """One line of cells under ROW_HEADER for each row."""
    return [
        (
            one.row.row_id,
            one.row.use,
            one.row.evidence,
            what(one.row),
            number(one.predicted),
            number(one.published),
            one.row.unit,
            signed_percent(one.error),
        )
        for one in compared
    ]


SUMMARY_HEADER = ("family", "evidence", "use", "rows", "mean", "median", "max", "worst row")
RIGHT_OF_SUMMARY = frozenset({3, 4, 5, 6})


def summary_cells(summaries: Sequence[Summary]) -> list[tuple[str, ...]]:
    """One line of cells under SUMMARY_HEADER for each summary."""
    return [
        (
            one.family,
            one.evidence,
            one.use,
            str(one.errors.count),
            percent(one.errors.mean),
            percent(one.errors.median),
            percent(one.errors.max),
            one.errors.worst_row,
        )
        for one in summaries
    ]


GOAL_HEADER = ("goal", "asked", "rows", "mean", "worst", "verdict")
RIGHT_OF_GOAL = frozenset({2, 3, 4})


def goal_cells(goals: Sequence[tuple[Goal, Errors | None]]) -> list[tuple[str, ...]]:
    """One line of cells under GOAL_HEADER for each goal."""
    return [(goal.name, str(goal), *_verdict(goal, errors)) for goal, errors in goals]


def _verdict(goal: Goal, errors: Errors | None) -> tuple[str, ...]:
    if errors is None:
        return "0", "-", "-", "not measured"
    verdict = "met" if goal.met_by(errors) else "missed"
    return str(errors.count), percent(errors.mean), percent(errors.max), verdict


def _row_json(row: Row, family: str | None) -> dict[str, Any]:
    return {
        "row_id": row.row_id,
        "file": Path(row.file).name,
        "line": row.line,
        "family": family,
        "use": row.use,
        "evidence": row.evidence,
        "what": what(row),
        "published": row.value,
        "unit": row.unit,
    }


def _compared_json(one: Compared) -> dict[str, Any]:
    return {**_row_json(one.row, one.family), "predicted": one.predicted, "error": one.error}


def _digest(path: Path) -> str:
    return sha256(path.read_bytes()).hexdigest()
