"""Replay rows: each is compared, listed with the reason why not, or failed; none is lost."""

from __future__ import annotations

import math
import traceback
from collections.abc import Sequence
from dataclasses import dataclass

from validation.families.replay import CannotReplay, Family
from validation.rows.row import Row
from wsc.core.errors import WaferStreamError


@dataclass(frozen=True)
class Compared:
    """A row and its prediction, both in the unit of the row."""

    row: Row
    family: str
    predicted: float
    published: float

    @property
    def error(self) -> float:
        """Signed and relative to what is published: 0.1 is a prediction 10 % too high."""
        return self.predicted / self.published - 1


@dataclass(frozen=True)
class Listed:
    """A row that is not compared, and why."""

    row: Row
    family: str | None
    reason: str


@dataclass(frozen=True)
class Failed:
    """A row on which a replay broke: a bug."""

    row: Row
    family: str | None
    bug: str


@dataclass(frozen=True)
class Replays:
    """What became of every row, each part in the order of the rows."""

    compared: tuple[Compared, ...]
    listed: tuple[Listed, ...]
    failed: tuple[Failed, ...]

    @classmethod
    def of(cls, rows: Sequence[Row], families: Sequence[Family]) -> Replays:
        """Replay all rows, each in its family."""
        outcomes = [_outcome(row, families) for row in rows]
        return cls(
            tuple(outcome for outcome in outcomes if isinstance(outcome, Compared)),
            tuple(outcome for outcome in outcomes if isinstance(outcome, Listed)),
            tuple(outcome for outcome in outcomes if isinstance(outcome, Failed)),
        )

    @property
    def rows(self) -> list[Row]:
        """All of them."""
        return [
            *(one.row for one in self.compared),
            *(one.row for one in self.listed),
            *(one.row for one in self.failed),
        ]


def family_of(seen: Row, families: Sequence[Family]) -> Family | None:
    """The family of a described row: the first that knows it; None if there is none."""
    return next((family for family in families if family.knows(seen)), None)


def _outcome(row: Row, families: Sequence[Family]) -> Compared | Listed | Failed:
    seen, name = row.described(), None
    try:
        family = family_of(seen, families)
        if family is None:
            raise CannotReplay(f"no model for {seen.text('workload')}")
        name = family.name
        published = _published(row)
        predicted = float(family.predict(seen))
    except CannotReplay as reason:
        return Listed(row, name, str(reason))
    except WaferStreamError as refusal:  # a cell or a machine that the model cannot accept
        return Listed(row, name, "; ".join(line.strip() for line in str(refusal).splitlines()))
    except Exception:
        return Failed(row, name, traceback.format_exc().rstrip())
    if not (math.isfinite(predicted) and predicted > 0):
        return Failed(row, name, f"a prediction is finite and positive, not {predicted}")
    return Compared(row, name, predicted, published)


def _published(row: Row) -> float:
    if isinstance(row.value, str):
        raise CannotReplay(f"the published value is not a number: {row.value}")
    if row.value <= 0:
        raise CannotReplay(f"the published value is not positive: {row.value}")
    return row.value
