"""The commands of ``waferstream``, each imported when it is called.

A command is a function with typed parameters below an ``App`` (``waferstream.cli.frame``), in a
module of this package; its line here is what makes people find it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.completion import shell_complete
from typer.core import TyperCommand
from typer.main import get_install_completion_arguments

from waferstream.cli.frame.commands import NAME, SETTINGS, App, Group, parse, refused
from waferstream.cli.frame.words import is_flag
from waferstream.version import VERSION


@dataclass(frozen=True)
class Entry:
    """A command, or a group of commands, in the help of ``waferstream``."""

    place: str
    """Module and name of its ``App``, or of a function that makes its command."""

    help: str
    panel: str
    hidden: bool = False

    def load(self, name: str) -> Any:
        """Import the command."""
        module, _, attribute = self.place.partition(":")
        found = getattr(import_module(module), attribute)
        command = found.built() if isinstance(found, App) else found(name)
        command.name = name
        command.help = command.help or f"{self.help[0].upper()}{self.help[1:]}."
        return command


RUNS = "Train, predict, look into"
FILES = "Models, data, files"
SERVING = "Ask a trained model"
APPLIANCE = "Clusters and their users"

_FORM = "waferstream.cli.forms:running_command"
_TOOL = "waferstream.cli.tools.command:tool_command"
_SERVING = "waferstream.cli.serving"

COMMANDS: Mapping[str, Entry] = {
    "train": Entry(_FORM, "train a model, and evaluate it where there is data for that", RUNS),
    "eval": Entry(_FORM, "evaluate a trained model", RUNS),
    "simulate": Entry(_FORM, "predict the time of training on any number of systems", RUNS),
    "plan": Entry(_FORM, "show how a step lies on the machine: SRAM, streams, time", RUNS),
    "trace": Entry(_FORM, "draw and animate one kernel of a layer on the wafer", RUNS),
    "explore": Entry("waferstream.cli.tools.explore:app", "move sliders over the simulator", RUNS),
    "runs": Entry("waferstream.cli.tools.runs:app", "list, show, compare, remove runs", RUNS),
    "report": Entry(
        "waferstream.cli.tools.report:app", "show what a run found, and its page", RUNS
    ),
    "check": Entry(
        "waferstream.cli.check:app", "compare the first steps of a program with plain PyTorch", RUNS
    ),
    "exec": Entry(
        "waferstream.cli.execute:app", "run a program that was written for the real machine", RUNS
    ),
    "study": Entry("waferstream.cli.tools.study:app", "predict a grid over any keys", RUNS),
    "search": Entry(
        "waferstream.cli.tools.search:app",
        "find batch, systems and micro-batch for least days or cost",
        RUNS,
    ),
    "compare": Entry("waferstream.cli.tools.compare:app", "wafers or GPUs for a budget", RUNS),
    "tco": Entry(_TOOL, "compare what a project costs on several machines", RUNS),
    "config": Entry(_TOOL, "copy, check, compare and explain params files", FILES),
    "model": Entry(_TOOL, "list and describe models, write initial weights", FILES),
    "data": Entry(_TOOL, "prepare texts as files of tokens", FILES),
    "data_processor": Entry(_TOOL, "list, describe and measure data processors", FILES),
    "checkpoint": Entry(_TOOL, "convert, compare, verify and prune checkpoints", FILES),
    "machine": Entry(_TOOL, "list systems and clusters that have a name", FILES),
    "generate": Entry(f"{_SERVING}.generate:app", "continue a text", SERVING),
    "serve": Entry(
        f"{_SERVING}.serve:app",
        "answer over HTTP, or plan a service; serve keys, serve usage",
        SERVING,
    ),
    "serve keys": Entry(f"{_SERVING}.accounts:keys", "say who may ask", SERVING, hidden=True),
    "serve usage": Entry(f"{_SERVING}.accounts:usage", "show what was used", SERVING, hidden=True),
    "batch": Entry(f"{_SERVING}.batch:app", "answer a file of requests", SERVING),
    "ctl": Entry(_TOOL, "list, explain and cancel jobs; users, sessions, nodes", APPLIANCE),
    "cluster": Entry(_TOOL, "plan hosts; lend a cluster to programs elsewhere", APPLIANCE),
    "management": Entry(
        "waferstream.cli.management:app", "serve an appliance to many users", APPLIANCE
    ),
    "certificates": Entry(_TOOL, "make the certificates of a cluster's links", APPLIANCE),
    "run": Entry(_FORM, "as run.py --params FILE, with all flags", RUNS, hidden=True),
    "fit": Entry(_FORM, "as train", RUNS, hidden=True),
    "validate": Entry(_FORM, "as eval", RUNS, hidden=True),
    "validate_all": Entry(_FORM, "evaluate each checkpoint on each data set", RUNS, hidden=True),
}

_EPILOG = (
    "waferstream COMMAND --help has an example of each. Words that begin with a flag are those of "
    "run.py and of the real machine (waferstream run --help)."
)

_COMPLETE = "_WAFERSTREAM_COMPLETE"
"""Variable in which a shell says what it asks for, when it completes a word."""

_COMPLETION = ("complete words with Tab in this shell", "print what that installs")
"""Help of the flags that Typer adds, in one line each."""

MEANT: Mapping[str, str] = {
    **dict.fromkeys(("predict", "estimate", "sweep"), "simulate FILE"),
    **dict.fromkeys(("show", "results", "status"), "report FOLDER"),
    **dict.fromkeys(("evaluate", "test"), "eval FILE"),
    "ls": "runs list",
    "chat": "generate FOLDER",
    "convert": "checkpoint convert",
    "preprocess": "data preprocess",
    "cancel": "ctl cancel",
}
"""What people mean by words that are no commands."""

_DEVICES = ("CSX", "CPU", "GPU")
"""First words of ``run.py`` that are no flag."""


class Root(Group):
    """All commands. Words that begin with a flag, or a device, are those of ``run.py``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Find the command that words begin with."""
        own = {word for option in self.get_params(ctx) for word in option.opts}
        if args and (args[0] in _DEVICES or (is_flag(args[0]) and args[0] not in own)):
            args = ["run", *args]
        if " ".join(args[:2]) in COMMANDS:
            args = [" ".join(args[:2]), *args[2:]]
        return super().parse_args(ctx, args)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return name and command that words begin with, imported, and the other words."""
        if args[0] in MEANT:
            ctx.fail(f"No such command '{args[0]}'. Did you mean: {NAME} {MEANT[args[0]]}?")
        name, shown, rest = super().resolve_command(ctx, args)
        return name, shown and COMMANDS[str(shown.name)].load(str(shown.name)), rest


def _print_version(value: bool) -> None:
    if value:
        print(f"waferstream {VERSION}")
        raise typer.Exit


def _waferstream(
    version: Annotated[
        bool, typer.Option("--version", help="print the version", callback=_print_version)
    ] = False,
) -> None:
    """Train, evaluate or simulate a model on an emulated wafer-scale cluster."""


@cache
def root() -> Any:
    """Return the command ``waferstream``; its commands are imported when they are called."""
    app = App(cls=Root, epilog=_EPILOG, subcommand_metavar="COMMAND ...")
    app.callback()(_waferstream)
    command = app.built()
    options: Any = get_install_completion_arguments()
    for option, text in zip(options, _COMPLETION, strict=True):
        option.help = text
        command.params.append(option)
    command.commands = {
        name: TyperCommand(name, help=each.help, rich_help_panel=each.panel, hidden=each.hidden)
        for name, each in COMMANDS.items()
    }
    return command


def context_of(words: Sequence[str], home: Path = Path()) -> Any:
    """Return the context of the command that words call, with its values; call nothing.

    Args:
        words: What follows the program's name.
        home: Folder that is searched for cluster.yaml after the current one.

    Raises:
        SystemExit: code 2 for wrong words, code 0 after ``--help``.
    """
    return parse(root(), words, home)


def call(words: Sequence[str], home: Path) -> int:
    """Do what a command line says; return its exit code; arguments and errors as ``context_of``."""
    if asked := os.environ.get(_COMPLETE):
        return shell_complete(root(), {"obj": home, **SETTINGS}, NAME, _COMPLETE, asked)
    context = context_of(words, home)
    try:
        with context:
            return context.command.invoke(context) or 0
    except typer.TyperException as error:
        raise refused(error) from None
