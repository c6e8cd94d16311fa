"""A command-line flag: how it is typed, how its values are parsed, and what it sets."""

from __future__ import annotations

from argparse import ArgumentTypeError
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from waferstream.config.overrides import KeyPath
from waferstream.config.sections.init import levels_by_role
from waferstream.core.units import parse_count

SWITCH = {"action": "store_true"}
NUMBER = {"type": int}
WORDS = {"nargs": "+", "action": "extend"}
"""Options of ``add_argument``: no value; a number; several words, also in several places."""


@dataclass(frozen=True)
class Flag:
    """One command-line flag.

    ``options`` are keyword arguments of ``add_argument``; ``collect`` converts the value that
    argparse has read. A flag without ``paths`` controls the run, not the configuration.
    """

    name: str
    help: str
    short: str | None = None
    positional: bool = False
    options: Mapping[str, Any] = field(default_factory=dict)
    collect: Callable[[Any], Any] = lambda value: value
    paths: tuple[KeyPath, ...] = ()
    how: Literal["set", "prepend", "merge"] = "set"
    excludes: str | None = None
    """Group of mutually exclusive flags."""

    @property
    def spelling(self) -> tuple[str, ...]:
        """The flag as it is typed, short form first."""
        if self.positional:
            return (self.name,)
        return (f"-{self.short}", f"--{self.name}") if self.short else (f"--{self.name}",)


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


def count(text: str) -> float:
    """Parse a number that may end with K, M, B or T; raise ArgumentTypeError for any other text."""
    try:
        return parse_count(text)
    except ValueError:
        raise ArgumentTypeError(f"{text!r} must be a number, as in 300B or 300e9") from None


def key_value(text: str) -> tuple[str, str]:
    """Split ``key=value``; raise ArgumentTypeError for any other text."""
    key, equals, value = text.partition("=")
    if not (key and equals):
        raise ArgumentTypeError(f"{text!r} must be key=value")
    return key, value


def setting(text: str) -> tuple[str, bool | int | float | str]:
    """Split ``key=value`` and parse the value as a scalar."""
    key, value = key_value(text)
    return key, parse_scalar(value)


def levels(words: Sequence[str]) -> dict[str, str]:
    """Map roles to log levels: ``INFO`` sets all, ``wgt=DEBUG`` one; later words win."""
    by_role: dict[str, str] = {}
    for word in words:
        by_role |= dict([key_value(word)]) if "=" in word else levels_by_role(word)
    return by_role
