"""Apply command-line values to a resolved configuration."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

from waferstream.core.errors import ConfigError

KeyPath = tuple[str, ...]
"""Keys from ``trainer`` down; below ``callbacks`` and ``loggers``, the name of a class."""

INIT: KeyPath = ("init",)
BACKEND: KeyPath = (*INIT, "backend")
CLUSTER: KeyPath = (*BACKEND, "cluster_config")
PRECISION: KeyPath = (*INIT, "precision")
LOOP: KeyPath = (*INIT, "loop")
CHECKPOINT: KeyPath = (*INIT, "checkpoint")
LOGGING: KeyPath = (*INIT, "logging")
CALLBACKS: KeyPath = (*INIT, "callbacks")
LOGGERS: KeyPath = (*INIT, "loggers")
GLOBAL_FLAGS: KeyPath = (*CALLBACKS, "GlobalFlags")


_LISTS = ("callbacks", "loggers")


@dataclass(frozen=True)
class Override:
    """A typed value and the rule that combines it with the value of the file.

    ``set`` replaces it, ``prepend`` puts the typed entries before those of the file, ``merge``
    adds the typed keys to those of the file and wins where both have one
    (Model Zoo 2.10, ``cli_parser.py``).
    """

    flag: str
    path: KeyPath
    value: Any
    how: Literal["set", "prepend", "merge"] = "set"

    @property
    def is_key(self) -> bool:
        """Whether the key itself was typed, ``--fit.ckpt_path``, and no flag that stands for it."""
        return "." in self.flag

    def over(self, old: Any) -> Any:
        """Return the value that replaces ``old``."""
        match self.how:
            case "set":
                return self.value
            case "prepend":
                return [*self.value, *(old or [])]
            case "merge":
                return {**(old or {}), **self.value}


def apply_overrides(trainer: dict[str, Any], overrides: Iterable[Override]) -> dict[str, Any]:
    """Return a copy of the ``trainer`` mapping with typed values applied.

    A missing section of a mode (``fit``, ``validate``, ``validate_all``) is not created.

    Raises:
        ConfigError: A typed key is of such a section, or below a value that has no keys.
    """
    result = copy.deepcopy(trainer)
    for override in overrides:
        if override.path[0] in result:
            lay_over(result, override)
        elif override.is_key:
            raise ConfigError(
                f"the file must have the section {override.path[0]!r}",
                code="missing-key",
                where=override.flag,
                remedy="write the section to the file",
            )
    return result


def lay_over(data: dict[str, Any], override: Override) -> None:
    """Set a typed value in a mapping."""
    try:
        holder, key = _holder(data, override.path), override.path[-1]
        holder[key] = override.over(holder.get(key))
    except (AttributeError, TypeError) as error:
        raise ConfigError(
            "the key must be below a mapping", code="unknown-key", where=override.flag
        ) from error


def put(trainer: dict[str, Any], path: KeyPath, value: Any) -> None:
    """Set the value at ``path``; create missing mappings, callbacks and loggers."""
    _holder(trainer, path)[path[-1]] = value


def _holder(data: Any, path: KeyPath) -> dict[str, Any]:
    """Return the mapping that holds the last key of ``path``."""
    for depth, key in enumerate(path[:-1]):
        if isinstance(data, list):
            data = _entry(data, key)
        elif data.get(key) is None:
            data[key] = [] if key in _LISTS else {}
        elif isinstance(data[key], str):  # the name of a preset, some of whose numbers are changed
            data[key] = {"name": data[key]}
        data = data[key]
        if key == "optimizer" and path[depth + 1] not in data and len(data) == 1:
            (data,) = data.values()  # its class need not be typed
    holder: dict[str, Any] = data
    return holder


def _entry(entries: list[dict[str, Any]], name: str) -> dict[str, Any]:
    """Return the arguments of entry ``{name: arguments}``, adding the entry where missing."""
    for entry in entries:
        if name in entry:
            break
    else:
        entries.append(entry := {name: None})
    if entry[name] is None:
        entry[name] = {}
    return entry
