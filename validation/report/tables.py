"""Tables for a terminal and for Markdown, and the format of their numbers."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass

from waferstream.core import units


@dataclass(frozen=True)
class Table:
    """A table of text."""

    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    right: frozenset[int] = frozenset()
    """Numbers of the right-aligned columns."""

    def text(self) -> str:
        """Return aligned lines for a terminal."""
        left = set(range(len(self.header))) - self.right
        return "\n".join(units.aligned([self.header, *self.rows], left=left))

    def csv(self) -> str:
        """Return comma-separated values, numbers as they are shown but without separators."""
        file = io.StringIO()
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(self.header)
        for row in self.rows:
            writer.writerow(
                text.replace(",", "") if column in self.right else text
                for column, text in enumerate(row)
            )
        return file.getvalue()

    def markdown(self) -> str:
        """Return a Markdown table."""
        rule = ["---:" if column in self.right else "---" for column in range(len(self.header))]
        lines = [self.header, rule, *([_escaped(text) for text in row] for row in self.rows)]
        return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;").replace("\n", " ")


def number(value: float, digits: int = 4) -> str:
    """Return a number with ``digits`` digits, or with all digits before the point."""
    whole = abs(value) >= 10 ** (digits - 1)
    return f"{value:,.0f}" if whole else f"{value:.{digits}g}"


def percent(share: float, decimals: int = 1) -> str:
    """Return a share in percent: 0.0712 becomes ``7.1 %``."""
    return f"{share:.{decimals}%}".replace("%", " %")


def signed_percent(share: float) -> str:
    """Return a share with its sign: 0.0712 becomes ``+7.1 %``."""
    return f"{share:+.1%}".replace("%", " %")
