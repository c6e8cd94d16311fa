"""What ``import cstorch`` loads: a program that finds its step compiled needs no compiler."""

from __future__ import annotations

import subprocess
import sys

SLOW = ("cstorch.tracing.recording_step", "matplotlib", "ray", "sympy", "torch._dynamo")
"""Modules that take a part of a second, or seconds, where they are needed."""


def test_import_loads_nothing_slow() -> None:
    """A merge of a module that is imported early with one that is slow shows here."""
    code = f"import sys, cstorch; print(*[name for name in {SLOW} if name in sys.modules])"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == []
