"""Words of a command line, as they are typed: with hyphens or underscores, one value or several."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NoReturn

from typer.core import TyperOption

from waferstream.core.errors import nearest

_LIST = re.compile(r"[\w.+-]+(,[\w.:+-]+)+|\d+-\d+(:[x+]\d+)?")
"""Values that vary: ``2,4,8``, ``1-64``, ``1-64:x2``."""


Flag = tuple[str, TyperOption]
"""A flag as it is declared, and what it is."""

Fail = Callable[[str], NoReturn]
"""Ends a command whose words are wrong, with exit code 2 and a message."""


def underscored(word: str) -> str:
    """Return a name of a flag or command as it is declared: ``num-csx`` is ``num_csx``."""
    return word.replace("-", "_")


def spelled(word: str) -> str:
    """Return a flag as it is declared: ``--num-csx=4`` is ``--num_csx``."""
    name = word.partition("=")[0]
    return f"--{underscored(name[2:])}" if name.startswith("--") else name[:2]


def is_flag(word: str) -> bool:
    """Return whether a word is a flag: it is no number below zero, nor a hyphen alone."""
    return word.startswith("-") and len(word) > 1 and not word[1:].replace(".", "", 1).isdecimal()


def split_dotted(words: Sequence[str], fail: Fail) -> tuple[list[str], list[tuple[str, str]]]:
    """Split the words of a command into those of flags and those of keys, which have a value.

    A key is a flag with a dot in its name, ``--model.hidden_size 512``.
    """
    kept: list[str] = []
    keys: list[tuple[str, str]] = []
    rest = iter(words)
    for word in rest:
        name, equals, value = word.partition("=")
        if not (name.startswith("--") and "." in name):
            kept.append(word)
            continue
        if not equals:
            value = next(rest, "--")
            if is_flag(value):
                fail(f"argument {name}: expected one argument")
        keys.append((underscored(name[2:]), value))
    return kept, keys


def split_lists(
    words: Sequence[str], keys: Sequence[tuple[str, str]]
) -> tuple[list[str], list[tuple[str, str]]]:
    """Split off what varies: keys, and ``--num_csx``, with a list or a range of values.

    Returns:
        The words without such a ``--num_csx``, and pairs of key and values.
    """
    over = [(name, values) for name, values in keys if _LIST.fullmatch(values)]
    kept: list[str] = []
    rest = iter(words)
    for word in rest:
        name, equals, value = word.partition("=")
        if spelled(word) != "--num_csx":
            kept.append(word)
            continue
        value = value if equals else next(rest, "")
        if _LIST.fullmatch(value):
            over.append(("num_csx", value))
        else:
            kept += [name, value]
    return kept, over


def as_declared(words: Sequence[str], flags: Mapping[str, Flag], fail: Fail) -> Iterator[str]:
    """Yield words with flags as they are declared, one before each of its values.

    ``--output_dir a`` may be ``--output-dir a``, and ``--x 1 2`` is ``--x 1 --x 2``, as is ``--x
    1,2`` where values are known words.

    Args:
        words: The words of a command.
        flags: Its flags, by their names with underscores.
        fail: What is called where a flag does not exist, or a value is missing.
    """
    rest = deque(words)
    while rest:
        word = rest.popleft()
        if not is_flag(word):
            yield word
            continue
        if word == "--":
            yield from [word, *rest]
            return
        name = spelled(word)
        if name not in flags:
            guess = nearest(name, flags)
            fail(f"unknown flag {name}" + (f"; did you mean {guess}?" if guess else ""))
        (declared, option), value = flags[name], word[len(name) :]
        if option.is_flag:
            yield declared + value
            continue
        values = [value.removeprefix("=")] if value else []  # -m=train, too
        while not value and rest and not is_flag(rest[0]) and (option.multiple or not values):
            values.append(rest.popleft())
        if not values:
            fail(f"argument {declared}: expected one argument")
        if option.multiple and option.type_descriptor.is_choice:
            values = [part for each in values for part in each.split(",")]
        for each in values:
            yield from (declared, each)
