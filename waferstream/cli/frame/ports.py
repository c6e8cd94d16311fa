"""Flags that name a port of TCP."""

from __future__ import annotations

from typing import Any

from typer import Option

_MOST = 65_535
"""RFC 9293: a port has 16 bits. gRPC takes the low ones of a larger number, and says nothing."""


def port_flag(text: str) -> Any:
    """Return the declaration of a flag whose help is ``text``, and whose 0 is any free port."""
    return Option(min=0, max=_MOST, help=text)
