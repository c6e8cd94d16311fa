"""Limits of the package of a working directory."""

from __future__ import annotations

MOST_PACKED_BYTES = 256 << 20
MOST_BYTES = 1 << 30
"""Unpacked."""

MOST_FILES = 20_000
