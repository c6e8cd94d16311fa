"""The commands of ``waferstream``, each imported when it is called.

A command is a function with typed parameters in a module of this package, which
``waferstream.cli.frame.commands.command`` declares; its line here is what makes people find it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Annotated, Any

import typer
from typer.completion import shell_complete
from typer.core import TyperCommand
from typer.main import get_command, get_install_completion_arguments

from waferstream.cli.frame.commands import COMPLETE, NAME, SETTINGS, Group, find, parse, refusing
from waferstream.cli.frame.words import is_flag
from waferstream.version import VERSION


@dataclass(frozen=True)
class Entry:
    """A command, or a group of commands, in the help of ``waferstream``."""

    module: str
    """Module below ``waferstream.cli`` that declares it, or package whose modules do."""

    help: str
    panel: str
    hidden: bool = False

    def load(self, name: str) -> Any:
        """Import the command."""
        module = import_module(f"waferstream.cli.{self.module}")
        for each in iter_modules(getattr(module, "__path__", ()), f"{module.__name__}."):
            import_module(each.name)
        found = find(name)
        found.name = name
        if isinstance(found, Group) or not found.help:
            found.help = f"{self.help[0].upper()}{self.help[1:]}."
        return found


RUNS = "Train, predict, look into"
FILES = "Models, data, files"
SERVING = "Ask a trained model"
APPLIANCE = "Clusters and their users"

COMMANDS: Mapping[str, Entry] = {
    "train": Entry("forms", "train a model, and evaluate it where there is data for that", RUNS),
    "eval": Entry("forms", "evaluate a trained model", RUNS),
    "simulate": Entry("forms", "predict the time of training on any number of systems", RUNS),
    "plan": Entry("forms", "show how a step lies on the machine: SRAM, streams, time", RUNS),
    "trace": Entry("forms", "draw and animate one kernel of a layer on the wafer", RUNS),
    "explore": Entry("tools.explore", "move sliders over the simulator", RUNS),
    "runs": Entry("tools.runs", "list, show, compare, remove runs", RUNS),
    "report": Entry("tools.runs", "show what a run found, and its page", RUNS),
    "check": Entry("programs", "compare the first steps of a program with plain PyTorch", RUNS),
    "exec": Entry("programs", "run a program that was written for the real machine", RUNS),
    "study": Entry("tools.study", "predict a grid over any keys", RUNS),
    "search": Entry(
        "tools.study", "find batch, systems and micro-batch for least days or cost", RUNS
    ),
    "compare": Entry("tools.compare", "wafers or GPUs for a budget", RUNS),
    "tco": Entry("tools.compare", "compare what a project costs on several machines", RUNS),
    "config": Entry("tools.config", "copy, check, compare and explain params files", FILES),
    "model": Entry("tools.registered", "list and describe models, write initial weights", FILES),
    "data": Entry("tools.preparation", "prepare texts as files of tokens", FILES),
    "data_processor": Entry(
        "tools.registered", "list, describe and measure data processors", FILES
    ),
    "checkpoint": Entry(
        "tools.checkpoint", "convert, compare, verify and prune checkpoints", FILES
    ),
    "machine": Entry("tools.machine", "list systems and clusters that have a name", FILES),
    "generate": Entry("serving.generate", "continue a text", SERVING),
    "serve": Entry(
        "serving.serve", "answer over HTTP, or plan a service; serve keys, serve usage", SERVING
    ),
    "serve keys": Entry("serving.accounts", "say who may ask", SERVING, hidden=True),
    "serve usage": Entry("serving.accounts", "show what was used", SERVING, hidden=True),
    "batch": Entry("serving.generate", "answer a file of requests", SERVING),
    "ctl": Entry("tools.ctl", "list, explain and cancel jobs; users, sessions, nodes", APPLIANCE),
    "cluster": Entry(
        "tools.cluster", "plan hosts; lend a cluster to programs elsewhere", APPLIANCE
    ),
    "management": Entry("management", "serve an appliance to many users", APPLIANCE),
    "certificates": Entry(
        "tools.certificates", "make the certificates of a cluster's links", APPLIANCE
    ),
    "run": Entry("forms", "run a params file as run.py does, with all flags", RUNS, hidden=True),
    "fit": Entry("forms", "train and evaluate, as the vendor's command does", RUNS, hidden=True),
    "validate": Entry(
        "forms",
        "evaluate, as the vendor's command does; config validate checks keys",
        RUNS,
        hidden=True,
    ),
    "validate_all": Entry("forms", "evaluate each checkpoint on each data set", RUNS, hidden=True),
}

_EPILOG = (
    "waferstream COMMAND --help has an example of each. Words that begin with a flag are those of "
    "run.py and of the real machine (waferstream run --help)."
)

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
    app = typer.Typer(
        cls=Root, epilog=_EPILOG, subcommand_metavar="COMMAND ...", add_completion=False
    )
    app.callback()(_waferstream)
    command: Any = get_command(app)
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
    if asked := os.environ.get(COMPLETE):
        return shell_complete(root(), {"obj": home, **SETTINGS}, NAME, COMPLETE, asked)
    context = context_of(words, home)
    with refusing(), context:
        return context.command.invoke(context) or 0
