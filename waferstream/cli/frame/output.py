"""What commands print: rows as a table or as JSON, lines about what was done, paths."""

from __future__ import annotations

import json
import pydoc
import sys
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from waferstream.core.units import aligned
from waferstream.host.files import json_text

_JSON = ContextVar("_JSON", default=False)
_NO_PAGER = ContextVar("_NO_PAGER", default=False)


def ask_for_json(value: bool) -> bool:
    """Let the command that runs print JSON alone, or text."""
    _JSON.set(value)
    return value


def ask_for_no_pager(value: bool) -> bool:
    """Let the command that runs print tables at once, or by pages."""
    _NO_PAGER.set(value)
    return value


def prints_json() -> bool:
    """Return whether the command that runs prints JSON alone."""
    return _JSON.get()


def answer(found: Any, text: str) -> int:
    """Print what was found as JSON, or in words; return 0."""
    print(json_text(found) if prints_json() else text, flush=True)
    return 0


def show(rows: Sequence[Mapping[str, Any]]) -> int:
    """Print rows with equal keys as a table, paged on a terminal, or as JSON; return 0."""
    if prints_json():
        return print_rows(rows)
    text = table(rows)
    if sys.stdout.isatty() and not _NO_PAGER.get():
        pydoc.pager(text)
    else:
        print(text)
    return 0


def show_facts(facts: Mapping[str, Any]) -> int:
    """Print what is known of one thing as a table, or as rows of JSON; return 0."""
    return show([{"field": field, "value": value} for field, value in facts.items()])


def tell(text: str, **row: Any) -> int:
    """Print a line about what was done or found, or its row as JSON; return 0."""
    if prints_json():
        return print_rows([row])
    print("\n".join(map(printable, text.splitlines())))
    return 0


def tell_paths(*paths: Path) -> int:
    """Print the paths of files that were written, one per line or as rows of JSON; return 0."""
    if prints_json():
        return print_rows([{"path": path} for path in paths])
    print(*paths, sep="\n")
    return 0


def print_rows(rows: Sequence[Mapping[str, Any]]) -> int:
    """Print rows as JSON; return 0."""
    print(json.dumps(list(rows), indent=2, default=str))
    return 0


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return rows with equal keys as lines with aligned columns, below a line of their keys."""
    if not rows:
        return "(none)"
    cells = [[*rows[0]], *([_text(value) for value in row.values()] for row in rows)]
    return "\n".join(aligned(cells, left=range(len(cells[0]))))


def _text(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    if isinstance(value, list | tuple):
        return printable(", ".join(map(str, value)))
    return printable(str(value))


def printable(text: str) -> str:
    """Return a text without what a terminal would obey, such as in a label of another user."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else repr(each)[1:-1] for each in text)
