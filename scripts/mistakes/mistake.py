"""A mistake as data: what is done wrong, the files that are there, what is typed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path

Edit = tuple[str, str]
"""A text that occurs in ``params.yaml`` or ``program.py``, and what takes its place."""


def nothing(folder: Path) -> AbstractContextManager[None]:  # noqa: ARG001
    """Prepare nothing more."""
    return nullcontext()


@dataclass(frozen=True)
class Typed:
    """One command line, typed in a folder of its own.

    Args:
        words: The command line, as for a shell.
        expects: What a good answer says, each of them: what is wrong, the rule, the remedy.
        edits: Changes of the files that every folder has, a valid run and a valid program.
        files: Further files by their names; a name that ends with a slash is an empty folder.
        prepare: Makes what is no plain file (a full disk, another run) while the command runs.
        environment: Variables that are set beside those of the caller.
        needs: What must be computed before the mistake can be seen, which takes longer than two
            seconds; empty where nothing must.
        leaves: Names in the folder that may be left, seen from it.
        code: The exit codes of a good answer.
        signals: Texts of its output after which SIGINT is sent, one after the other.
    """

    words: str
    expects: tuple[str, ...]
    edits: tuple[Edit, ...] = ()
    files: Mapping[str, str | bytes] = field(default_factory=dict)
    prepare: Callable[[Path], AbstractContextManager[None]] = nothing
    environment: Mapping[str, str] = field(default_factory=dict)
    needs: str = ""
    leaves: tuple[str, ...] = ()
    code: tuple[int, ...] = (1, 2)
    signals: tuple[str, ...] = ()


@dataclass(frozen=True)
class Mistake:
    """A mistake: its number, what is done wrong, and the ways to type it."""

    number: int
    what: str
    typed: tuple[Typed, ...]
