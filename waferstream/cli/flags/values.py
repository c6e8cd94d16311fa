"""Parse the values of command-line flags."""

from __future__ import annotations

from argparse import ArgumentTypeError
from collections.abc import Sequence

from waferstream.config.sections.init import levels_by_role
from waferstream.core.units import parse_count


def parse_scalar(text: str) -> bool | int | float | str:
    """Parse text as a bool, an int or a float, in this order; else return it unchanged."""
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for number in (int, float):
        try:
            return number(text)
        except ValueError:
            continue
    return text


def count(text: str) -> float:
    """Parse a number that may end with K, M, B or T; raise ArgumentTypeError for any other text."""
    try:
        return parse_count(text)
    except ValueError:
        raise ArgumentTypeError(f"{text!r} must be a number, as in 300B or 300e9") from None


def key_value(text: str) -> tuple[str, str]:
    """Split ``key=value``; raise ArgumentTypeError for any other text."""
    key, equals, value = text.partition("=")
    if not (key and equals):
        raise ArgumentTypeError(f"{text!r} must be key=value")
    return key, value


def setting(text: str) -> tuple[str, bool | int | float | str]:
    """Split ``key=value`` and parse the value as a scalar."""
    key, value = key_value(text)
    return key, parse_scalar(value)


def levels(words: Sequence[str]) -> dict[str, str]:
    """Map roles to log levels: ``INFO`` sets all, ``wgt=DEBUG`` one; later words win."""
    by_role: dict[str, str] = {}
    for word in words:
        by_role |= dict([key_value(word)]) if "=" in word else levels_by_role(word)
    return by_role
