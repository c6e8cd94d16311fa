"""The command that simulates what the page shows."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from typing import Any

from waferstream.explorer.knobs import NUM_CSX


def command_of(files: str, systems: int, changes: Mapping[str, Any]) -> str:
    """Return the command for the words of some files, a number of systems and other keys."""
    lines = [f"waferstream simulate {files} --num_csx {systems}"]
    for key, value in changes.items():
        if key != NUM_CSX:
            lines.append(f"--{_short(key)} {_written(value)}")
    return " \\\n    ".join(lines)


def _short(key: str) -> str:
    """Return a key from its section on, which a dot follows."""
    whole = key.removeprefix("trainer.")
    section = whole.removeprefix("init.").removeprefix("fit.")
    return section if "." in section else whole


def _written(value: Any) -> str:
    """Return a value as YAML in a word of a shell."""
    return shlex.quote(json.dumps(value)) if isinstance(value, Mapping) else str(value)
