"""What a flag of ``run.py`` is: how argparse reads it, and where its value goes."""

from __future__ import annotations

from argparse import ArgumentTypeError
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from waferstream.config.key_paths import KeyPath
from waferstream.config.logging import levels_by_role


@dataclass(frozen=True)
class Flag:
    """One flag.

    ``options`` are keyword arguments of ``add_argument``; ``collect`` makes the value from what
    argparse has read. A flag without ``paths`` concerns the run, not the configuration.
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
    """Flags of the same group exclude each other."""

    @property
    def spelling(self) -> tuple[str, ...]:
        """The flag as it is typed, the short form first."""
        if self.positional:
            return (self.name,)
        return (f"-{self.short}", f"--{self.name}") if self.short else (f"--{self.name}",)


def parse_scalar(text: str) -> bool | int | float | str:
    """A bool, an int, a float, or else the text itself, tried in this order."""
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for number in (int, float):
        try:
            return number(text)
        except ValueError:
            continue
    return text


def key_value(text: str) -> tuple[str, str]:
    """``key=value`` as a pair; ArgumentTypeError if it is none."""
    key, equals, value = text.partition("=")
    if not (key and equals):
        raise ArgumentTypeError(f"{text!r} is not written key=value")
    return key, value


def setting(text: str) -> tuple[str, bool | int | float | str]:
    """``key=value`` with a value that is parsed."""
    key, value = key_value(text)
    return key, parse_scalar(value)


def levels(words: Sequence[str]) -> dict[str, str]:
    """``INFO`` for all roles, ``wgt=DEBUG`` for one; a later word wins."""
    by_role: dict[str, str] = {}
    for word in words:
        by_role |= dict([key_value(word)]) if "=" in word else levels_by_role(word)
    return by_role
