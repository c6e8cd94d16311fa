"""Words of a command line, as they are typed: with hyphens or underscores, one value or several."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from waferstream.core.errors import nearest


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


def one_value_each(words: Sequence[str], flags: Mapping[str, int]) -> Iterator[str]:
    """Yield words with a flag before each value of it: ``--x 1 2`` is ``--x 1 --x 2``.

    Args:
        words: The words of a command.
        flags: How many values each flag takes: 0, 1, or -1 for several.

    Raises:
        WrongCommandLine: A flag does not exist, or a value is missing.
    """
    flag, is_open = "", False  # the last flag, while values may follow; whether one must
    rest = iter(words)
    for word in rest:
        if word == "--":
            yield word
            yield from rest
        elif is_flag(word):
            _check_complete(flag, is_open=is_open)
            name = _known(word, flags)
            has_value = flags[name] == 0 or (
                ("=" in word) if word.startswith("--") else word != name
            )
            flag, is_open = ("" if has_value else name), not has_value
            yield word
        else:
            if flag and not is_open:
                yield flag
            yield word
            flag, is_open = (flag if flags.get(flag) == -1 else ""), False
    _check_complete(flag, is_open=is_open)


def _known(word: str, flags: Mapping[str, int]) -> str:
    """Return a flag as it is declared; WrongCommandLine for one that is not."""
    name = spelled(word)
    if name not in flags:
        guess = nearest(name, flags)
        hint = f"; did you mean {guess}?" if guess else ""
        raise WrongCommandLine(f"unknown flag {name}{hint}")
    return name


def _check_complete(flag: str, *, is_open: bool) -> None:
    if is_open:
        raise WrongCommandLine(f"argument {flag}: expected one argument")
