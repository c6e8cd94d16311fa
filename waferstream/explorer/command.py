"""The command that simulates what the page shows."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from waferstream.explorer.knobs import NUM_CSX


def command_of(name: str, systems: int, changes: Mapping[str, Any]) -> str:
    """Return the command for a params file, a number of systems and values by dotted keys."""
    words = ["waferstream", "simulate", name, "--num_csx", str(systems)]
    for key, value in changes.items():
        if key != NUM_CSX:
            words += [f"--{key}", str(value)]
    return shlex.join(words)
