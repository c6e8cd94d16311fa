"""The table of the programs in docs/compatibility.md, and their changed lines below it."""

from __future__ import annotations

import re
from collections.abc import Iterable

from scripts.programs.catalogue import PROGRAMS
from scripts.programs.program import Program
from scripts.programs.runs import Outcome

HEAD = (
    "| program | file | changed lines | losses | plain PyTorch's | largest distance |\n"
    "|---|---|---:|---:|---|---:|\n"
)
_TABLE = re.compile(rf"{re.escape(HEAD)}(?P<rows>(?:\|.*\n)*)\n(?:```diff\n(?:.*\n)*?```\n\n)?")


def with_outcomes(page: str, outcomes: Iterable[Outcome]) -> str:
    """Return a page with the rows of outcomes; of programs that were not run the older ones stay.

    Raises:
        ValueError: The page has no such table.
    """
    found = _TABLE.search(page)
    if found is None:
        raise ValueError(f"the page has no table that begins with {HEAD!r}")
    rows = {row.partition("]")[0]: row for row in found["rows"].splitlines(keepends=True)}
    rows |= {_start(each.program): _row(each) for each in outcomes}
    ordered = (rows.get(_start(program), "") for program in PROGRAMS)
    table = f"{HEAD}{''.join(ordered)}\n```diff\n{''.join(map(_changes, PROGRAMS))}```\n\n"
    return page[: found.start()] + table + page[found.end() :]


def _row(outcome: Outcome) -> str:
    program = outcome.program
    return (
        f"{_start(program)}](https://github.com/{program.repository}) | `{program.file}` | "
        f"{len(program.changed_lines)} | {len(outcome.plain)} | "
        f"{'equal' if outcome.is_good else 'not equal'} | {outcome.distance:.0e} |\n"
    )


def _start(program: Program) -> str:
    return f"| [{program.name}"


def _changes(program: Program) -> str:
    """Return the changed lines of a program under its name; none if there are none."""
    lines = program.changed_lines
    return "".join([f"# {program.name}\n", *(f"+{line}\n" for line in lines)]) if lines else ""
