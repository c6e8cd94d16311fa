"""Fidelity report: predictions of some files, with code, constants and goals; text and data."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import Any

from validation.families.prediction import Compared, Family, Predictions
from validation.report.constants import Constant, constants
from validation.report.intervals import Judged, coverage_table, judged, residuals_of
from validation.report.summary import (
    GOALS,
    Errors,
    Goal,
    Summary,
    error_table,
    goal_table,
    grouped,
    row_table,
    summaries,
    summary_table,
)
from validation.report.tables import Table
from validation.rows.reader import check_unique, read_rows
from validation.rows.row import Row
from waferstream.machine.intervals import AnyInterval, Residuals
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
    """Predictions of every row of some files."""

    sources: tuple[Source, ...]
    predictions: Predictions
    families: tuple[str, ...]
    """Names of the families, in order."""
    commit: str | None
    host: Host

    @classmethod
    def of(cls, paths: Sequence[Path], families: Sequence[Family]) -> Report:
        """Predict the rows of all files; ConfigError if a file or one of its rows is malformed."""
        files = [(path, read_rows(path)) for path in paths]
        rows = [row for _, rows in files for row in rows]
        check_unique(rows)
        return cls(
            tuple(Source(path.name, len(rows), _digest(path)) for path, rows in files),
            Predictions.of(rows, families),
            tuple(dict.fromkeys(family.name for family in families)),
            git_commit(_ROOT),
            describe_host(version("torch")),
        )

    @cached_property
    def summaries(self) -> tuple[Summary, ...]:
        """Errors of each family, evidence and use, in the order of the families."""
        found = summaries(self.predictions.compared, calibrated_rows())
        return tuple(sorted(found, key=lambda one: self.families.index(one.family)))

    @property
    def by_family(self) -> dict[str, list[Compared]]:
        """Compared rows by family, in the order of the families."""
        groups = grouped(self.predictions.compared, lambda one: one.family)
        return {name: groups[name] for name in self.families if name in groups}

    @property
    def goals(self) -> list[tuple[Goal, Errors | None]]:
        """Goals with the errors on their validation rows, None if there are none."""
        return [(goal, goal.errors(self.predictions.compared)) for goal in GOALS]

    @property
    def missed(self) -> list[tuple[Goal, Errors]]:
        """Goals that are not met."""
        return [(goal, errors) for goal, errors in self.goals if errors and not goal.met_by(errors)]

    @property
    def misfitted(self) -> list[tuple[Constant, str]]:
        """Fitted constants whose source names a row that is not marked calibration."""
        banned = {row.row_id for row in self.predictions.rows if row.use != "calibration"}
        fitted = [constant for constant in constants() if constant.status == "fitted"]
        return [
            (constant, row_id)
            for constant in fitted
            for row_id in constant.rows
            if row_id in banned
        ]

    @property
    def residuals(self) -> Residuals:
        """Errors of these predictions, from which intervals follow."""
        return residuals_of(self.predictions.compared, calibrated_rows())

    @cached_property
    def judged(self) -> list[Judged]:
        """Every row with the interval of its prediction, as the program states it."""
        return judged(self.predictions.compared, Residuals.read())

    @property
    def intervals(self) -> dict[str, AnyInterval]:
        """The interval of each row, by its id."""
        return {one.compared.row.row_id: one.interval for one in self.judged}

    @property
    def error_table(self) -> Table:
        """Errors on validation rows of every family, goals met and missed."""
        return error_table(self.predictions.compared, self.families)

    def text(self) -> str:
        """Return every row, the errors per family, evidence and use, and the goals."""
        return "\n\n".join(self._paragraphs())

    def as_json(self) -> dict[str, Any]:
        """Return the report as plain data, with code, host and constants."""
        return {
            "question": "how far are predictions from published measurements",
            "git_commit": self.commit,
            "host": asdict(self.host),
            "sources": [asdict(source) for source in self.sources],
            "families": self.families,
            "constants": [asdict(constant) for constant in constants()],
            "compared": [
                {**_compared_json(one.compared), "interval": asdict(one.interval)}
                for one in self.judged
            ],
            "skipped": [
                {**_row_json(one.row, one.family), "reason": one.reason, "code": one.code}
                for one in self.predictions.skipped
            ],
            "failed": [
                {**_row_json(one.row, one.family), "bug": one.bug}
                for one in self.predictions.failed
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
            yield f"{family}\n{row_table(compared, self.intervals).text()}"
        if self.predictions.skipped:
            reasons = [
                (one.row.row_id, one.row.label, one.reason) for one in self.predictions.skipped
            ]
            yield f"skipped\n{Table(('row', 'label', 'reason'), reasons).text()}"
        for failed in self.predictions.failed:
            yield f"BUG on row {failed.row.row_id} ({failed.family or 'no family'}):\n{failed.bug}"
        if self.summaries:
            yield f"absolute errors\n{summary_table(self.summaries).text()}"
        yield f"intervals, on validation rows\n{coverage_table(self.judged).text()}"
        yield f"goals, on validation rows\n{goal_table(self.goals).text()}"
        yield (
            f"{len(self.predictions.compared)} rows compared,"
            f" {len(self.predictions.skipped)} skipped, {len(self.predictions.failed)} failed"
        )


def calibrated_rows() -> set[str]:
    """Return the ids of the rows that fitted constants rest on."""
    fitted = (constant for constant in constants() if constant.status == "fitted")
    return {row_id for constant in fitted for row_id in constant.rows}


def _row_json(row: Row, family: str | None) -> dict[str, Any]:
    return {
        "row_id": row.row_id,
        "file": Path(row.file).name,
        "line": row.line,
        "family": family,
        "use": row.use,
        "evidence": row.evidence,
        "label": row.label,
        "published": row.value,
        "unit": row.unit,
    }


def _compared_json(one: Compared) -> dict[str, Any]:
    return {**_row_json(one.row, one.family), "predicted": one.predicted, "error": one.error}


def _digest(path: Path) -> str:
    return sha256(path.read_bytes()).hexdigest()
