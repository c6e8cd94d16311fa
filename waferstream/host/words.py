"""Whose words the lines of a program are in: plain ones, or those of the vendor's client."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Literal

Words = Literal["plain", "vendor", "quiet"]
"""What a terminal shows of a run: plain lines, those of the vendor's client, or, quiet, warnings
and the result alone."""

VENDOR_LOG = logging.getLogger("waferstream").getChild("vendor")
"""Lines of the vendor's client that say what plain ones say otherwise, or nothing."""

PLAIN_LOG = logging.getLogger("waferstream").getChild("plain")
"""Lines in their place."""


def in_words(words: Words) -> Callable[[logging.LogRecord], bool]:
    """Return a filter of log lines that passes those in these words."""
    others = PLAIN_LOG if words == "vendor" else VENDOR_LOG
    least = logging.WARNING if words == "quiet" else logging.NOTSET
    return lambda record: record.name != others.name and record.levelno >= least
