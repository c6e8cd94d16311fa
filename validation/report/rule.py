"""The rule for fitted constants: each rests on enough rows of enough models, and there are few.

A constant that one row decides meets that row by construction and proves nothing. Without the rows
that the rule asks for it is *assumed*: its rows count as calibrated nowhere.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from validation.families.settings import model_name
from validation.report.constants import Constant, constants
from validation.report.tables import Table
from validation.rows.reader import PUBLISHED, read_rows
from validation.rows.row import Row
from waferstream.core.units import counted

LEAST_ROWS = 3
LEAST_MODELS = 2
MOST_CONSTANTS = 18

_AS_ANOTHER = re.compile(r"as (\w+)")


@dataclass(frozen=True)
class Support:
    """What a fitted constant rests on."""

    constant: Constant
    rows: tuple[str, ...]
    models: tuple[str, ...]

    @property
    def holds(self) -> bool:
        """Whether there are enough rows of enough models."""
        return len(self.rows) >= LEAST_ROWS and len(self.models) >= LEAST_MODELS

    @property
    def verdict(self) -> str:
        """``fitted``, or why the constant has to be called assumed."""
        if self.holds:
            return "fitted"
        extent = f"{counted(len(self.rows), 'row')} of {counted(len(self.models), 'model')}"
        return f"to be assumed: {extent}"


def supports(stated: Iterable[Constant], rows: Sequence[Row]) -> tuple[Support, ...]:
    """Return what every fitted constant rests on.

    A source names rows or, with ``as NAME``, another constant of the same holder.
    """
    fitted = [constant for constant in stated if constant.status == "fitted"]
    by_name = {(one.holder, one.name): one for one in fitted}
    by_id = {row.row_id: row for row in rows}
    return tuple(_support(one, by_name, by_id) for one in fitted)


def house_supports() -> tuple[Support, ...]:
    """Return what the fitted constants in use rest on, among the committed rows."""
    return supports(constants(), [row for path in PUBLISHED for row in read_rows(path)])


def broken(found: Sequence[Support]) -> list[str]:
    """Return the complaints about fitted constants, one each."""
    complaints = [
        f"{one.constant.holder}.{one.constant.name} is {one.verdict}; a fitted constant needs "
        f"{LEAST_ROWS} rows of {LEAST_MODELS} models"
        for one in found
        if not one.holds
    ]
    if len(found) > MOST_CONSTANTS:
        complaints.append(f"{len(found)} constants are fitted, at most {MOST_CONSTANTS} may be")
    return complaints


def support_table(found: Sequence[Support]) -> Table:
    """Return a table with one line for each fitted constant."""
    lines = [
        (
            f"{one.constant.holder}.{one.constant.name}",
            one.constant.shown,
            str(len(one.rows)),
            ", ".join(one.models),
            one.verdict,
        )
        for one in found
    ]
    return Table(("constant", "value", "rows", "models", "verdict"), lines, frozenset({1, 2}))


def _support(
    constant: Constant, by_name: Mapping[tuple[str, str], Constant], by_id: Mapping[str, Row]
) -> Support:
    same = _AS_ANOTHER.match(constant.source)
    origin = constant if same is None else by_name.get((constant.holder, same[1]), constant)
    rows = [by_id[row_id] for row_id in dict.fromkeys(origin.rows) if row_id in by_id]
    models = dict.fromkeys(model_name(row) for row in rows)
    return Support(constant, tuple(row.row_id for row in rows), tuple(models))
