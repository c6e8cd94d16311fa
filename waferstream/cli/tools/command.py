"""Commands beside runs: groups of sub-commands on configurations, models, data, checkpoints.

A command of a group has a name, arguments and help, and prints its result. The names of groups,
commands and flags are those of the vendor's entry tool (Model Zoo 2.10, ``cli/main.py``).
"""

from __future__ import annotations

import argparse
import inspect
import json
import pydoc
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from appliance.user_code import importing_from

if TYPE_CHECKING:
    from waferstream.core.config import Config

TOOLS: Mapping[str, str] = {
    "config": "waferstream.cli.tools.config",
    "model": "waferstream.cli.tools.model",
    "data_processor": "waferstream.cli.tools.data",
    "data": "waferstream.cli.tools.preparation",
    "checkpoint": "waferstream.cli.tools.checkpoint.commands",
    "ctl": "waferstream.cli.tools.ctl.commands",
    "cluster": "waferstream.cli.tools.cluster",
    "machine": "waferstream.cli.tools.machine",
    "certificates": "waferstream.cli.tools.certificates",
    "tco": "waferstream.cli.tools.tco",
    "study": "waferstream.cli.tools.study",
    "search": "waferstream.cli.tools.search",
}
"""Group of commands to the module that holds them, in its variable COMMANDS.

A module is imported when its group is called: some of them import torch, which takes seconds.
"""


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
    """One word, or a verb and a noun, such as ``get jobs``; empty for the only one of its group."""

    help: str
    run: Callable[[argparse.Namespace], int]
    arguments: tuple[Argument, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)
    """What ``run`` is given beside the arguments."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare the arguments of the command to its parser."""
        for each in (*self.arguments, _JSON):
            parser.add_argument(*each.words, **each.options)
        parser.set_defaults(run=self.run, **self.settings)


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
    print("\n".join(map(_printable, text.splitlines())))
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
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    if isinstance(value, list | tuple):
        return _printable(", ".join(map(str, value)))
    return _printable(str(value))


def _printable(text: str) -> str:
    """Return a text without what a terminal would obey, such as in a label of another user."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else repr(each)[1:-1] for each in text)


def field_rows(config: type[Config]) -> list[dict[str, Any]]:
    """Return name, type and default of the keys of a configuration."""
    return [
        {
            "key": field.alias or name,
            "type": _type_name(field.annotation),
            "default": "required" if field.is_required() else field.get_default(),
        }
        for name, field in config.model_fields.items()
    ]


def _type_name(annotation: Any) -> str:
    name = annotation.__name__ if isinstance(annotation, type) else str(annotation)
    return name.replace("typing.", "")


def first_line(subject: object) -> str:
    """Return the first line of a docstring."""
    return (inspect.getdoc(subject) or "").split("\n")[0]


def run_tool(group: str, words: Sequence[str]) -> int:
    """Run a command of a group and return its exit code.

    Raises:
        SystemExit: code 2 for a wrong command line, code 0 after ``--help``.
        WaferStreamError: The command failed.
    """
    given = tool_parser(group).parse_args(words)
    params = getattr(given, "params", None) or getattr(given, "config", None) or Path()
    with importing_from((params.parent, Path())):
        code: int = given.run(given)
    return code


def tool_commands(group: str) -> Sequence[Command]:
    """Return the commands of a group."""
    commands: Sequence[Command] = import_module(TOOLS[group]).COMMANDS
    return commands


def tool_parser(group: str) -> argparse.ArgumentParser:
    """Build the argparse parser of a group."""
    parser = argparse.ArgumentParser(prog=f"waferstream {group}", allow_abbrev=False)
    commands = tool_commands(group)
    if not commands[0].name:
        parser.description = commands[0].help
        commands[0].add_arguments(parser)
        return parser
    choices = {"": parser.add_subparsers(metavar="COMMAND", required=True)}
    for command in commands:
        verb, _, word = command.name.rpartition(" ")
        if verb not in choices:
            nouns = [each.name for each in commands if each.name.startswith(f"{verb} ")]
            of_verb = choices[""].add_parser(verb, help=", ".join(nouns), allow_abbrev=False)
            choices[verb] = of_verb.add_subparsers(metavar="NOUN", required=True)
        own = choices[verb].add_parser(word, help=command.help, allow_abbrev=False)
        command.add_arguments(own)
    return parser
