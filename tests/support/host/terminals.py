"""A stand-in for a terminal."""

from __future__ import annotations

import io
import sys

import pytest


class Terminal(io.StringIO):
    """A stream that says it is a terminal, and keeps what was written."""

    def isatty(self) -> bool:
        return True


def terminal_of_test(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Make stderr a terminal; pytest takes it back from a fixture."""
    stderr = Terminal()
    monkeypatch.setattr(sys, "stderr", stderr)
    return stderr
