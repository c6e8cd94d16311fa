"""Further members of a family, which the suite leaves out for time (``make nightly``)."""

from __future__ import annotations

from typing import Any

import pytest


def nightly(*members: Any) -> list[Any]:
    """Return parameters of tests that the nightly run takes; a tuple has one for each name."""
    parts = (each if isinstance(each, tuple) else (each,) for each in members)
    return [pytest.param(*each, marks=pytest.mark.nightly) for each in parts]
