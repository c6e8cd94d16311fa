"""Commands beside runs, as data: a name, arguments, help, and what they do.

The names of groups, commands and flags are those of the vendor's entry tool (Model Zoo 2.10,
``cli/main.py``).
"""

from __future__ import annotations

import argparse
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from inspect import Parameter, Signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from appliance.user_code import importing_from
from waferstream.cli.frame.commands import App, literal, many, one_of
from waferstream.cli.frame.output import prints_json
from waferstream.cli.frame.words import WrongCommandLine, underscored
from waferstream.cli.tools.examples import EXAMPLES

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
}
"""Group of commands to the module that holds them, in its variable COMMANDS.

A module is imported when its group is called: some of them import torch, which takes seconds.
"""


@dataclass(frozen=True)
class Argument:
    """An argument of a command: its words, and what ``argument`` says of it."""

    words: tuple[str, ...]
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_flag(self) -> bool:
        """Whether it is typed by its name."""
        return self.words[0].startswith("-")

    @property
    def name(self) -> str:
        """Its name among the values that a command gets."""
        longest = max(self.words, key=len)
        return str(self.options.get("dest", underscored(longest.lstrip("-"))))

    @property
    def kind(self) -> Any:
        """The type of its value, as far as Typer reads it; ``value`` does the rest."""
        if self.options.get("action") == "store_true":
            return bool
        kind = self.options.get("type", str)
        kind = kind if kind in (str, int, float, Path) else str
        if "choices" in self.options:
            kind = one_of(self.options["choices"])
        return many(kind) if self._is_list else kind

    @property
    def _is_list(self) -> bool:
        return self.options.get("nargs") in ("+", "*") or self.options.get("action") == "append"

    @property
    def is_required(self) -> bool:
        """Whether a command line without it is wrong."""
        return bool(self.options.get("required", not self.is_flag)) and (
            self.options.get("nargs") not in ("?", "*")
        )

    def parameter(self) -> Parameter:
        """Return it as a parameter of a function that Typer makes a command of."""
        more: dict[str, Any] = {
            "help": literal(self.options.get("help", "")),
            "metavar": self.options.get("metavar"),
            "show_default": False,
            "autocompletion": self.options.get("complete"),
        }
        own: Any = typer.Option(*self.words, **more) if self.is_flag else typer.Argument(**more)
        default: Any = Parameter.empty if self.is_required else None
        kind = self.kind
        if kind is bool:
            default = False
        elif default is None:
            kind |= None
        return Parameter(
            self.name, Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, own]
        )

    def value(self, typed: Any) -> Any:
        """Return the value of what was typed; ``WrongCommandLine`` if it has another form."""
        convert = self.options.get("type", str)
        if typed is None:
            default = self.options.get("default", [] if self.options.get("nargs") == "*" else None)
            return convert(default) if isinstance(default, str) else default
        if convert in (str, int, float, Path):
            return typed
        try:
            return list(map(convert, typed)) if self._is_list else convert(typed)
        except (ValueError, argparse.ArgumentTypeError) as error:
            raise WrongCommandLine(f"argument {self.words[-1]}: {error}") from None


def argument(*words: str, **options: Any) -> Argument:
    """Declare an argument, with options as of ``argparse.add_argument``."""
    return Argument(words, options)


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

    def add_to(self, app: App, group: str, name: str) -> None:
        """Add the command to an app of its group, under its last word."""

        def call(ctx: typer.Context, **typed: Any) -> int:
            try:
                values = {each.name: each.value(typed[each.name]) for each in self.arguments}
            except WrongCommandLine as error:
                ctx.fail(str(error))
            given = argparse.Namespace(json=prints_json(), **values, **self.settings)
            folder = (values.get("params") or values.get("config") or Path()).parent
            with importing_from((folder, Path())):
                return self.run(given)

        own = [Parameter("ctx", Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context)]
        own += [each.parameter() for each in self.arguments]
        call.__signature__ = Signature(own)  # type: ignore[attr-defined]
        words = f"{group} {self.name}".strip()
        example = f"waferstream {words} {EXAMPLES[words]}".strip()
        app.command(name, help=f"{self.help[0].upper()}{self.help[1:]}.", example=example)(call)


def tool_command(group: str) -> Any:
    """Return a group of commands, or the only command of a group, by its name."""
    commands = tool_commands(group)
    apps = {"": App()}
    if not commands[0].name:
        commands[0].add_to(apps[""], group, group)
        return apps[""].built()
    apps[""].callback()(_group)
    for command in commands:
        verb, _, word = command.name.rpartition(" ")
        if verb not in apps:
            nouns = [each.name for each in commands if each.name.startswith(f"{verb} ")]
            apps[verb] = App()
            apps[verb].callback()(_group)
            apps[""].add_typer(apps[verb], name=verb, help=", ".join(nouns))
        command.add_to(apps[verb], group, word)
    return apps[""].built()


def _group() -> None:
    # An app with a callback is a group, even with a single command. Its docstring would be help.
    pass


def tool_commands(group: str) -> Sequence[Command]:
    """Return the commands of a group."""
    commands: Sequence[Command] = import_module(TOOLS[group]).COMMANDS
    return commands


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
