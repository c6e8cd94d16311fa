"""A command of a group: its name, arguments and help, and how it prints its result."""

from __future__ import annotations

import argparse
import json
import pydoc
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Argument:
    """An argument of a command: the words and the options of ``add_argument``."""

    words: tuple[str, ...]
    options: Mapping[str, Any] = field(default_factory=dict)


def argument(*words: str, **options: Any) -> Argument:
    """Declare an argument like ``add_argument``."""
    return Argument(words, options)


_JSON = argument("--json", action="store_true", help="print JSON")


@dataclass(frozen=True)
class Command:
    """A command of a group; ``run`` returns its exit code. Every command takes ``--json``."""

    name: str
    help: str
    run: Callable[[argparse.Namespace], int]
    arguments: tuple[Argument, ...] = ()

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare the arguments of the command to its parser."""
        for each in (*self.arguments, _JSON):
            parser.add_argument(*each.words, **each.options)


TABLE_FLAGS = (argument("-P", "--no-pager", action="store_true", help="print instead of paging"),)
"""Flags of a command that ends with ``show``."""


def show(given: argparse.Namespace, rows: Sequence[Mapping[str, Any]]) -> int:
    """Print rows with equal keys as a table, paged on a terminal, or as JSON; return 0."""
    if given.json:
        return print_rows(rows)
    text = table(rows)
    if sys.stdout.isatty() and not given.no_pager:
        pydoc.pager(text)
    else:
        print(text)
    return 0


def tell(given: argparse.Namespace, text: str, **row: Any) -> int:
    """Print a line about what was done or found, or its row as JSON; return 0."""
    if given.json:
        return print_rows([row])
    print(text)
    return 0


def tell_paths(given: argparse.Namespace, *paths: Path) -> int:
    """Print the paths of files that were written, one per line or as rows of JSON; return 0."""
    if given.json:
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
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = (
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in cells
    )
    return "\n".join(lines)


def _text(value: object) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value))
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
