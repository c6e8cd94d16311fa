"""Kinds of command-line options that the benchmarks share: wrong ones are told before measuring."""

from __future__ import annotations

from argparse import ArgumentTypeError
from pathlib import Path


def positive(text: str) -> int:
    """A whole number from 1; ArgumentTypeError if it is less."""
    number = int(text)
    if number < 1:
        raise ArgumentTypeError(f"{number} is not positive")
    return number


def new_file(text: str) -> Path:
    """A path whose folder exists, so that a long measurement does not fail at its end."""
    path = Path(text)
    if path.is_dir() or not path.absolute().parent.is_dir():
        raise ArgumentTypeError(f"{path} is no file in an existing folder")
    return path
