"""Units: time is an integer of picoseconds, sizes are bytes, rates are bytes per second.

Names carry the unit (``ready_ps``, ``slab_bytes``, ``bandwidth_bytes_per_s``); these helpers
convert for text and reports, and align tables of text.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence

PS_PER_NS = 1_000
PS_PER_US = 1_000_000
PS_PER_MS = 1_000_000_000
PS_PER_S = 1_000_000_000_000

KIB = 1 << 10
MIB = 1 << 20
GIB = 1 << 30
TIB = 1 << 40


def transfer_ps(num_bytes: int, bandwidth_bytes_per_s: int) -> int:
    """Return the picoseconds that ``num_bytes`` occupy a link, rounded up."""
    return -(-num_bytes * PS_PER_S // bandwidth_bytes_per_s)


def seconds(duration_ps: int) -> float:
    """Convert picoseconds to seconds."""
    return duration_ps / PS_PER_S


def format_ps(duration_ps: int) -> str:
    """Format a duration: ``"1.50 ms"``."""
    for unit_ps, name in ((PS_PER_S, "s"), (PS_PER_MS, "ms"), (PS_PER_US, "us"), (PS_PER_NS, "ns")):
        if abs(duration_ps) >= unit_ps:
            return f"{duration_ps / unit_ps:,.2f} {name}"
    return f"{duration_ps} ps"


def format_bytes(num_bytes: int) -> str:
    """Format a size: ``"3.2 MiB"``."""
    for unit, name in ((TIB, "TiB"), (GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")):
        if abs(num_bytes) >= unit:
            return f"{num_bytes / unit:.1f} {name}"
    return f"{num_bytes} B"


def format_rate(number: float, digits: int = 4) -> str:
    """Format a rate with ``digits`` digits, or all before the point: ``"13,264"``, ``"97.4"``."""
    rounded = float(f"{number:.{digits}g}")
    return f"{number:,.0f}" if rounded >= 10 ** (digits - 1) else f"{rounded:.{digits}g}"


def counted(number: int, noun: str, plural: str | None = None) -> str:
    """Format a number with its noun: ``"1 layer"``, ``"2,048 samples"``."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def format_count(number: float) -> str:
    """Format a large number in words: ``"1.01 trillion"``."""
    names = ((10**12, "trillion"), (10**9, "billion"), (10**6, "million"), (10**3, "thousand"))
    for unit, name in names:
        if number >= unit:
            return f"{number / unit:.3g} {name}"
    return f"{number:g}"


_SUFFIXES = {"T": 10**12, "B": 10**9, "M": 10**6, "K": 10**3}


def format_short(number: float) -> str:
    """Format a large number with a suffix: ``"199K"``, ``"2.71M"``, ``"300B"``."""
    for suffix, unit in _SUFFIXES.items():
        if float(f"{number:.3g}") >= unit:
            return f"{float(f'{number / unit:.3g}'):g}{suffix}"
    return f"{number:.3g}"


def parse_count(text: str) -> float:
    """Parse a number with or without a suffix, as ``format_short`` writes it: ``"1.4T"``.

    Raises:
        ValueError: The text is no such number.
    """
    unit = _SUFFIXES.get(text[-1:].upper(), 1)
    try:
        return float(text if unit == 1 else text[:-1]) * unit
    except ValueError:
        raise ValueError(f"{text!r} is no number such as 300B or 1.4e12") from None


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


def folded(rows: Iterable[Sequence[str]], width: int | None) -> list[str]:
    """Return aligned lines of at most ``width`` characters, if it is given.

    Columns that have no place follow in further tables, each of which repeats the first column. A
    column that is wider by itself is kept whole.
    """
    table = list(rows)
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    parts: list[list[int]] = [[]]
    for column in range(1, len(widths)):
        taken = widths[0] + sum(2 + widths[each] for each in parts[-1])
        if width is not None and parts[-1] and taken + 2 + widths[column] > width:
            parts.append([])
        parts[-1].append(column)
    tables = [aligned([row[0], *(row[each] for each in part)] for row in table) for part in parts]
    return tables[0] + [line for lines in tables[1:] for line in ("", *lines)]
