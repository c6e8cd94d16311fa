"""Predict rows: each one is compared, skipped with the reason, or failed."""

from __future__ import annotations

import math
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from validation.rows.row import CannotPredict, Row
from waferstream.core.errors import WaferStreamError


@dataclass(frozen=True)
class Family:
    """Benchmark family: rows that one model predicts.

    Both functions get ``Row.described()``: the configuration without any result.
    """

    name: str
    """Name in the report: ``collectives``, ``GEMV``, ``training CS-2``, ...

    Several families may share a name: the report counts their rows together.
    """
    knows: Callable[[Row], bool]
    """Return whether a row belongs to the family."""
    predict: Callable[[Row], float]
    """Return the prediction in the row's own unit; raise CannotPredict with the reason."""


@dataclass(frozen=True)
class Compared:
    """A row and its prediction, both in the unit of the row."""

    row: Row
    family: str
    predicted: float
    published: float

    @property
    def error(self) -> float:
        """Signed error relative to the published value: 0.1 is a prediction 10 % too high."""
        return self.predicted / self.published - 1


@dataclass(frozen=True)
class Skipped:
    """A row that is not compared, with the reason and its stable code."""

    row: Row
    family: str | None
    reason: str
    code: str


@dataclass(frozen=True)
class Failed:
    """A row whose prediction raised an unexpected exception: a bug."""

    row: Row
    family: str | None
    bug: str


@dataclass(frozen=True)
class Predictions:
    """Outcomes of all rows, each part in the order of the rows."""

    compared: tuple[Compared, ...]
    skipped: tuple[Skipped, ...]
    failed: tuple[Failed, ...]

    @classmethod
    def of(cls, rows: Sequence[Row], families: Sequence[Family]) -> Predictions:
        """Predict all rows, each by the first family that knows it."""
        outcomes = [_outcome(row, families) for row in rows]
        return cls(
            tuple(outcome for outcome in outcomes if isinstance(outcome, Compared)),
            tuple(outcome for outcome in outcomes if isinstance(outcome, Skipped)),
            tuple(outcome for outcome in outcomes if isinstance(outcome, Failed)),
        )

    @property
    def rows(self) -> list[Row]:
        """All rows."""
        outcomes: list[Compared | Skipped | Failed] = [*self.compared, *self.skipped, *self.failed]
        return [outcome.row for outcome in outcomes]


def family_of(row: Row, families: Sequence[Family]) -> Family | None:
    """Return the first family that knows a described row, or None."""
    return next((family for family in families if family.knows(row)), None)


def _outcome(row: Row, families: Sequence[Family]) -> Compared | Skipped | Failed:
    described, name = row.described(), None
    try:
        family = family_of(described, families)
        if family is None:
            raise CannotPredict(f"no model for {described.text('workload')}", code="no-family")
        name = family.name
        published = _published(row)
        predicted = float(family.predict(described))
    except CannotPredict as error:
        return Skipped(row, name, error.reason, error.code)
    except WaferStreamError as error:  # a column or a machine that the model cannot accept
        return Skipped(row, name, _one_line(error), error.code)
    except Exception:
        return Failed(row, name, traceback.format_exc().rstrip())
    if not (math.isfinite(predicted) and predicted > 0):
        return Failed(row, name, f"a prediction must be finite and positive; got {predicted}")
    return Compared(row, name, predicted, published)


def _one_line(error: WaferStreamError) -> str:
    labelled = (("where", error.where), ("value", error.value), ("rule", error.rule))
    details = [f"{label}: {text}" for label, text in labelled if text is not None]
    return "; ".join([error.what, *details])


def _published(row: Row) -> float:
    if isinstance(row.value, str):
        raise CannotPredict(
            f"the published value is not a number: {row.value}", code="value-not-a-number"
        )
    if row.value <= 0:
        raise CannotPredict(
            f"the published value is not positive: {row.value}", code="value-not-positive"
        )
    return row.value
