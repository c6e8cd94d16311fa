"""A command-line flag: how it is typed, and what it sets."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from waferstream.config.overrides import KeyPath

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
