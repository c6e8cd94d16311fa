"""Evaluate fits: constants, the error of every row, and its error where its model is left out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean

from validation.families.prediction import Family, family_of
from validation.families.settings import model_name
from validation.fit.calibration import Constants, Fit, calibrate
from validation.report.constants import constants
from validation.report.summary import belongs, grouped
from validation.report.tables import Table, number, percent, signed_percent
from validation.rows.row import Row
from waferstream.core.errors import ConfigError
from waferstream.core.units import counted


@dataclass(frozen=True)
class FittedRow:
    """A row with its error, and that of constants fitted without the rows of its model."""

    row: Row
    model: str
    error: float
    left_out: float | None
    """None where the other models are too few to fit all constants."""


@dataclass(frozen=True)
class Evaluation:
    """The constants of a fit and how well they meet its rows."""

    family: str
    constants: Constants
    rows: tuple[FittedRow, ...]

    @property
    def summary(self) -> str:
        """Rows, models, and both mean errors in one line."""
        unseen = (
            f"{self.mean_left_out} with the model left out"
            if self._left_out_errors
            else "no model can be left out"
        )
        return (
            f"{counted(len(self.rows), 'row')} of {counted(len(self.models), 'model')}, mean error "
            f"{self.mean}, {unseen}"
        )

    @property
    def models(self) -> set[str]:
        """The models of its rows."""
        return {one.model for one in self.rows}

    @property
    def mean(self) -> str:
        """Mean error with all rows."""
        return percent(fmean(abs(one.error) for one in self.rows))

    @property
    def mean_left_out(self) -> str:
        """Mean error with the model of each row left out; a dash where none can be."""
        return percent(fmean(self._left_out_errors)) if self._left_out_errors else "-"

    @property
    def worst_left_out(self) -> str:
        """Largest error with the model of a row left out; a dash where none can be."""
        return percent(max(self._left_out_errors)) if self._left_out_errors else "-"

    @property
    def _left_out_errors(self) -> list[float]:
        return [abs(one.left_out) for one in self.rows if one.left_out is not None]

    @property
    def constant_table(self) -> Table:
        """Every constant beside the value in use."""
        lines = [(name, number(value, 6), _in_use(name)) for name, value in self.constants.items()]
        return Table(("constant", "fitted", "in use"), lines, frozenset({1}))

    @property
    def row_table(self) -> Table:
        """Every row with both errors."""
        lines = [
            (
                one.row.row_id,
                one.row.label,
                one.model,
                signed_percent(one.error),
                "-" if one.left_out is None else signed_percent(one.left_out),
            )
            for one in self.rows
        ]
        header = ("row", "label", "model", "error", "model left out")
        return Table(header, lines, frozenset({3, 4}))

    def text(self) -> str:
        """Return both tables and the summary for a terminal."""
        parts = (self.family, self.constant_table.text(), self.row_table.text(), self.summary)
        return "\n".join(parts)


def evaluate_all(
    fits: Sequence[Fit], rows: Sequence[Row], families: Sequence[Family]
) -> Iterator[Evaluation]:
    """Yield the evaluation of every fit on the calibration rows of its family, if it has any."""
    for fit in fits:
        own = [row for row in members(rows, fit.family, families) if row.use == "calibration"]
        if own:
            yield evaluate(fit, own)


def members(rows: Sequence[Row], name: str, families: Sequence[Family]) -> list[Row]:
    """Return the rows of a family, assigned as in the report."""
    found = [(row, family_of(row.described(), families)) for row in rows]
    return [row for row, family in found if family is not None and belongs(family.name, name)]


def evaluate(fit: Fit, rows: Sequence[Row]) -> Evaluation:
    """Fit to rows; then again without those of each model in turn. ConfigError as ``calibrate``."""
    fitted = calibrate(fit, rows)
    found = []
    for model, own in grouped(rows, model_name).items():
        others = _without(fit, [row for row in rows if row not in own])
        for row in own:
            left_out = None if others is None else _error(fit, row, fitted | others)
            found.append(FittedRow(row, model, _error(fit, row, fitted), left_out))
    return Evaluation(fit.family, fitted, tuple(found))


def _without(fit: Fit, others: Sequence[Row]) -> Constants | None:
    """Return the constants of the other models; None if these are too few."""
    try:
        return calibrate(fit, others)
    except ConfigError:
        return None


def _error(fit: Fit, row: Row, found: Constants) -> float:
    return fit.predict(row.described(), found) / float(row.value) - 1


def _in_use(name: str) -> str:
    found = [f"{one.holder} {one.shown}" for one in constants() if one.called(name)]
    return ", ".join(found) or "no constant of this name"
