"""Settings of the vendor's servers (DebugArgs and INI values): kept and written, without effect.

DebugArgs form a tree of named values. Here it is a tree of attributes that can be merged, written
to a file and read again; the servers that it configures do not exist.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any


class DebugArgs(SimpleNamespace):
    """A tree of settings; an attribute that was not set is an empty branch."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        branch = type(self)()
        setattr(self, name, branch)
        return branch

    def MergeFrom(self, other: DebugArgs) -> None:  # noqa: N802  (the name in protobuf)
        """Take the settings of another tree, which win over those here."""
        for name, value in vars(other).items():
            if isinstance(value, DebugArgs) and isinstance(getattr(self, name), DebugArgs):
                getattr(self, name).MergeFrom(value)
            else:
                setattr(self, name, value)

    CopyFrom = MergeFrom


def get_debug_args(path: Path | str | None = None) -> DebugArgs:
    """Return the settings that ``write_debug_args`` wrote; none if there is no file."""
    settings = DebugArgs()
    if path is not None and Path(path).is_file():
        update_debug_args_from_keys(settings, json.loads(Path(path).read_text()))
    return settings


def write_debug_args(debug_args: DebugArgs, path: Path | str) -> None:
    """Write settings as JSON, one key per value."""
    Path(path).write_text(json.dumps(dict(_flat(debug_args)), indent=2))


def update_debug_args_from_keys(debug_args: DebugArgs, values: Mapping[str, Any]) -> None:
    """Set values by their dotted names."""
    for name, value in values.items():
        *branches, last = name.split(".")
        place = debug_args
        for branch in branches:
            place = getattr(place, branch)
        setattr(place, last, value)


def set_ini(debug_args: DebugArgs, **values: Any) -> None:
    """Set values of the INI section."""
    for name, value in values.items():
        setattr(debug_args.debug_usr.ini, name, value)


def set_default_ini(debug_args: DebugArgs, **values: Any) -> None:
    """Set values of the INI section that are not set yet."""
    known = vars(debug_args.debug_usr.ini)
    set_ini(debug_args, **{name: value for name, value in values.items() if name not in known})


def _flat(settings: DebugArgs, prefix: str = "") -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for name, value in vars(settings).items():
        is_branch = isinstance(value, DebugArgs)
        found += _flat(value, f"{prefix}{name}.") if is_branch else [(prefix + name, value)]
    return found
