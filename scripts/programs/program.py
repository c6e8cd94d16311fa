"""A public program: where it is, how it is made small, and the lines that change."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

Edit = tuple[str, str, str]
"""A file of the checkout, a text that occurs in it once, and what takes its place."""


def nothing(folder: Path) -> None:
    """Prepare no data."""


@dataclass(frozen=True)
class Program:
    """A program of a public repository.

    Args:
        name: Its name in the table.
        repository: ``owner/name`` on GitHub; its checkout is the folder ``name``.
        file: The program, seen from the checkout.
        changes: The lines that hand its steps over.
        loss: A regular expression whose group is a loss that the program prints.
        words: Its arguments.
        sizes: Edits that make it small, and draw no random numbers in a step; for both runs.
        prepare: Writes its data into the copy of the checkout.
        folder: The working folder, seen from the checkout.
        runner: What runs the file, if not Python itself.
        plain: Arguments of the plain run alone.
        handed_over: Arguments of the other run alone.
    """

    name: str
    repository: str
    file: str
    changes: tuple[Edit, ...]
    loss: str
    words: tuple[str, ...] = ()
    sizes: tuple[Edit, ...] = ()
    prepare: Callable[[Path], None] = nothing
    folder: str = "."
    runner: tuple[str, ...] = ()
    plain: tuple[str, ...] = ()
    handed_over: tuple[str, ...] = ()

    @property
    def changed_lines(self) -> list[str]:
        """The lines that the run on the cluster has in place of others, or beside them."""
        return [
            line
            for _, old, new in self.changes
            for line in new.splitlines()
            if line not in old.splitlines()
        ]
