"""Tables for a terminal and for Markdown, and how numbers stand in them."""

from __future__ import annotations

from collections.abc import Sequence

from wsc.core import tables

Cells = Sequence[str]


def aligned(header: Cells, rows: Sequence[Cells], right: frozenset[int] = frozenset()) -> str:
    """Lines of text; columns numbered in ``right`` flush right."""
    return "\n".join(tables.aligned([header, *rows], left=set(range(len(header))) - right))


def markdown(header: Cells, rows: Sequence[Cells], right: frozenset[int] = frozenset()) -> str:
    """A Markdown table; columns numbered in ``right`` flush right."""
    rule = ["---:" if column in right else "---" for column in range(len(header))]
    lines = [header, rule, *([_escaped(cell) for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _escaped(cell: str) -> str:
    return cell.replace("|", "\\|").replace("<", "&lt;").replace("\n", " ")


def number(value: float, digits: int = 4) -> str:
    """As many digits, or all those before the point."""
    whole = abs(value) >= 10 ** (digits - 1)
    return f"{value:,.0f}" if whole else f"{value:.{digits}g}"


def percent(share: float, decimals: int = 1) -> str:
    """A share in percent: 0.0712 is ``7.1 %``."""
    return f"{share:.{decimals}%}".replace("%", " %")


def signed_percent(share: float) -> str:
    """A share with its sign: 0.0712 is ``+7.1 %``."""
    return f"{share:+.1%}".replace("%", " %")
