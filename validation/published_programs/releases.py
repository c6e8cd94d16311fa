"""The last great change of speed of the vendor's software, as a dated event.

Two models show it on one kind of system. GPT-J 6B trained 19.8 samples/s on a CS-2 with release
1.9.2 (T0060), and 23.1 on each of two with release 2.3.0 (N0007). BERT-large trained 4,048 with
release 2.0.3 (T0070), and 4,889 in April 2024 (T0072). No later rows differ by as much. Other
releases have no speed of their own: one model on one release tells no release from its model.
"""

from __future__ import annotations

import re

from waferstream.core.errors import ConfigError

Release = tuple[int, ...]

_NUMBER = re.compile(r"(?:R|rel-|release[ _])?(\d{1,2}(?:\.\d+)+)(?:\+\S*)?", re.IGNORECASE)


FIRST: Release = (1, 9, 2)
"""First release with a row on which the rest of the model can be checked (T0060)."""

LAST_CHANGE: Release = (2, 1)
"""First release of 2024 (January)."""

SPEED_BEFORE = 0.83
"""Speed before it, relative to later software: 4,048 over 4,889, and 19.8 over 23.1 (0.86)."""


def release_of(text: str) -> Release | None:
    """Return the release that a log names (``R2.1.1``, ``rel-2.4``, ``2.4.0+build``).

    None if the text names no release, or a date instead.
    """
    found = _NUMBER.fullmatch(text)
    return tuple(map(int, found[1].split("."))) if found else None


def before_last_change(release: Release | None) -> bool:
    """Return whether a release precedes the change; rows that name none are taken not to."""
    return release is not None and release < LAST_CHANGE


def software_speed(release: Release | None) -> float:
    """Return the speed of a release, relative to those since the change.

    Raises ConfigError for one before ``FIRST``: releases 1.7 and 1.8 differ by a quarter on one
    model, and by how much on others is not known.
    """
    if release is not None and release < FIRST:
        raise ConfigError(
            "a release must not be older than the first one whose speed is known",
            code="release-not-calibrated",
            value=".".join(map(str, release)),
            rule=f"from {'.'.join(map(str, FIRST))} on",
        )
    return SPEED_BEFORE if before_last_change(release) else 1.0
