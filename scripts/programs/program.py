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

    @property
    def num_changed_lines(self) -> int:
        """The lines that differ between the two runs."""
        return sum(
            len(set(new.splitlines()) - set(old.splitlines())) for _, old, new in self.changes
        )
