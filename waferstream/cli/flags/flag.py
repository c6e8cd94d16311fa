"""A command-line flag: how it is typed, how its values are parsed, and what it sets."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from inspect import Parameter
from types import GenericAlias
from typing import Annotated, Any, Literal

import typer

from waferstream.config.overrides import KeyPath
from waferstream.config.sections.init import levels_by_role


@dataclass(frozen=True)
class Flag:
    """One command-line flag.

    ``collect`` converts the value that was read. A flag without ``paths`` controls the run, not the
    configuration.
    """

    name: str
    help: str
    kind: Any = str
    """Type of its value: ``bool`` of a switch, ``list[str]`` of a flag that takes several words."""
    short: str | None = None
    positional: bool = False
    required: bool = False
    metavar: str | None = None
    collect: Callable[[Any], Any] = lambda value: value
    paths: tuple[KeyPath, ...] = ()
    how: Literal["set", "prepend", "merge"] = "set"

    @property
    def spelling(self) -> tuple[str, ...]:
        """The flag as it is typed, short form first."""
        if self.positional:
            return (self.name,)
        return (f"-{self.short}", f"--{self.name}") if self.short else (f"--{self.name}",)

    def parameter(self, panel: str, *, hidden: bool) -> Parameter:
        """Return the flag as a parameter of a function that Typer makes a command of.

        Args:
            panel: Title of its group in the help.
            hidden: Whether the help leaves it out.
        """
        more: Any = {"help": self.help, "metavar": self.metavar, "show_default": False}
        of_form: Any = (
            typer.Argument(**more)
            if self.positional
            else typer.Option(*self.spelling, hidden=hidden, rich_help_panel=panel, **more)
        )
        kind, default = (bool, False) if self.kind is bool else (self.kind | None, None)
        return Parameter(
            self.name,
            Parameter.KEYWORD_ONLY,
            default=Parameter.empty if self.required else default,
            annotation=Annotated[kind, of_form],
        )


def words_of(known: Iterable[str]) -> dict[str, Any]:
    """Return type and conversion of a flag that takes several words, each of them a known one."""
    make: Any = StrEnum  # of no members that a checker of types knows
    choice = make("Choice", [(word, word) for word in known])
    kind = GenericAlias(list, (choice,))
    return {"kind": kind, "collect": lambda words: tuple(map(str, words))}


def key_flag(
    section: KeyPath, name: str, meaning: str, key: str | None = None, **more: Any
) -> Flag:
    """Declare a flag for one configuration key, named like the flag unless ``key`` is given."""
    return Flag(name, meaning, paths=((*section, key or name),), **more)


def parse_scalar(text: str) -> bool | int | float | str:
    """Parse text as a bool, an int or a float, in this order; else return it unchanged."""
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for number in (int, float):
        try:
            return number(text)
        except ValueError:
            continue
    return text


def key_value(text: str) -> tuple[str, str]:
    """Split ``key=value``; raise ValueError for any other text."""
    key, equals, value = text.partition("=")
    if not (key and equals):
        raise ValueError(f"{text!r} must be key=value")
    return key, value


def key_values(words: Sequence[str]) -> dict[str, str]:
    """Return the values of words ``key=value`` by key."""
    return dict(map(key_value, words))


def settings(words: Sequence[str]) -> dict[str, bool | int | float | str]:
    """Return the values of words ``key=value`` by key, each parsed as a scalar."""
    return {key: parse_scalar(value) for key, value in map(key_value, words)}


def levels(words: Sequence[str]) -> dict[str, str]:
    """Map roles to log levels: ``INFO`` sets all, ``wgt=DEBUG`` one; later words win."""
    by_role: dict[str, str] = {}
    for word in words:
        by_role |= dict([key_value(word)]) if "=" in word else levels_by_role(word)
    return by_role
