"""Words of a command line, as they are typed: with hyphens or underscores, one value or several."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from waferstream.core.errors import nearest

_LIST = re.compile(r"[\w.+-]+(,[\w.:+-]+)+|\d+-\d+(:[x+]\d+)?")
"""Values that vary: ``2,4,8``, ``1-64``, ``1-64:x2``."""


class WrongCommandLine(Exception):
    """A command line that no command takes; it ends the command with exit code 2."""


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


def split_dotted(words: Sequence[str]) -> tuple[list[str], list[tuple[str, str]]]:
    """Split the words of a command into those of flags and those of keys.

    A key is a flag with a dot in its name, ``--model.hidden_size 512``.

    Raises:
        WrongCommandLine: A key has no value.
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
                raise WrongCommandLine(f"argument {name}: expected one argument")
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


@dataclass(frozen=True)
class Declared:
    """A flag as it is declared, and how many values it takes: 0, 1, or -1 for several."""

    word: str
    values: int
    splits: bool = False
    """Whether a word may be several values with commas, as known words are."""

    def parts(self, word: str) -> list[str]:
        """Return the values that a word stands for."""
        return word.split(",") if self.splits else [word]


def as_declared(words: Sequence[str], flags: Mapping[str, Declared]) -> Iterator[str]:
    """Yield words with flags as they are declared, one before each of its values.

    ``--output_dir a`` may be ``--output-dir a``, and ``--x 1 2`` is ``--x 1 --x 2``.

    Args:
        words: The words of a command.
        flags: Its flags, by their names with underscores.

    Raises:
        WrongCommandLine: A flag does not exist, or a value is missing.
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
        name = _known(word, flags)
        flag, value = flags[name], word[len(name) :]
        if flag.values == 0:
            yield flag.word + value
            continue
        values = [value.removeprefix("=")] if value else []  # -m=train, too
        while not value and rest and not is_flag(rest[0]) and (flag.values < 0 or not values):
            values.append(rest.popleft())
        if not values:
            raise WrongCommandLine(f"argument {flag.word}: expected one argument")
        for part in (part for each in values for part in flag.parts(each)):
            yield from (flag.word, part)


def _known(word: str, flags: Mapping[str, Declared]) -> str:
    """Return the name of a flag with underscores; WrongCommandLine for one that there is not."""
    name = spelled(word)
    if name not in flags:
        guess = nearest(name, flags)
        hint = f"; did you mean {guess}?" if guess else ""
        raise WrongCommandLine(f"unknown flag {name}{hint}")
    return name
