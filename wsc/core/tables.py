"""Format tables as plain text for a terminal or a file."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence


def aligned(rows: Iterable[Sequence[str]], left: Container[int] = (0,)) -> list[str]:
    """Format rows of cells as lines; columns in ``left`` are left-aligned, the others right."""
    table = list(rows)
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return [
        "  ".join(
            cell.ljust(width) if column in left else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in table
    ]
