"""Numbers of systems as they are typed: ``1,2,4-8``, ``1-192``, ``1-2048:x2``."""

from __future__ import annotations

import re
from collections.abc import Iterator

from wsc.core.errors import ConfigError

MOST_SYSTEMS = 2048
"""Of the largest cluster that the vendor offers (CS-3, announcement of 2024)."""

_PART = re.compile(r"(?P<first>\d+)(?:-(?P<last>\d+)(?::x(?P<factor>\d+))?)?", re.ASCII)


def parse_sweep(text: str, where: str) -> tuple[int, ...]:
    """Numbers of systems in ascending order, each once.

    Parts are separated by commas: a number, a range with both ends, or a range with a factor, which
    begins with its first number and multiplies. Raises ConfigError, found at ``where``.
    """
    return tuple(sorted({number for part in text.split(",") for number in _of(part, text, where)}))


def powers_up_to(num_csx: int) -> tuple[int, ...]:
    """1, 2, 4, ... and ``num_csx``, to see how its pace comes about."""
    return (*(1 << power for power in range((num_csx - 1).bit_length())), num_csx)


def _of(part: str, text: str, where: str) -> Iterator[int]:
    found = _PART.fullmatch(part.strip())
    if found is None:
        raise _wrong(part, text, where)
    first, last = int(found["first"]), int(found["last"] or found["first"])
    factor = int(found["factor"] or 0)
    if not 1 <= first <= last <= MOST_SYSTEMS or (found["factor"] and factor < 2):
        raise _wrong(part, text, where)
    while first <= last:
        yield first
        first = first * factor if factor else first + 1


def _wrong(part: str, text: str, where: str) -> ConfigError:
    return ConfigError(
        "the number of systems is wrong",
        where=where,
        value=f"{part.strip() or 'nothing'} in {text!r}",
        rule=f"whole numbers from 1 to {MOST_SYSTEMS:,}, as in 1,2,4-8 or 1-192 or 1-2048:x2",
    )
