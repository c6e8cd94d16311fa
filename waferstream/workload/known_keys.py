"""The keys of models and data processors, written down: they are checked before torch is imported.

A package lists those of its own in a file (group ``keys`` of ``waferstream.core.plugins``), which
``written`` makes. Everything else about a section is checked by its class, later.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, get_args

from pydantic import BeforeValidator

from waferstream.core.config import Config
from waferstream.core.config_errors import unknown
from waferstream.core.errors import ConfigError
from waferstream.core.plugins import Plugins

_Keys = dict[str, bool]
"""Whether the value is a number, by key."""


def check_keys(section: Mapping[str, Any], name: object, where: str) -> None:
    """Check keys and numbers of the section of a named model or data processor.

    Raises:
        ConfigError: A key does not exist, or has a word where a number belongs.
    """
    keys = _known().get(str(name))
    if keys is None:
        return
    for key, value in section.items():
        if key not in keys:
            raise unknown(f"key {key!r}", "keys", key, sorted(keys), where)
        if keys[key] and isinstance(value, str) and not _is_number(value):
            raise ConfigError(
                f"value of {key!r} is not allowed",
                code="wrong-type",
                where=where,
                value=repr(value),
                rule="a number",
            )


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


@cache
def _known() -> dict[str, _Keys]:
    """Return the keys of every named section whose package lists them."""
    known: dict[str, _Keys] = {}
    for path in Plugins[Path]("keys").values():
        listed = json.loads(path.read_text(encoding="utf-8"))
        known |= {name: listed["sections"][section] for name, section in listed["names"].items()}
    return known


def written(sections: Mapping[str, type[Config]]) -> str:
    """Return the file that lists the keys of named sections, each class once."""
    classes = {kind.__name__: _keys(kind) for kind in sections.values()}
    names = {name: kind.__name__ for name, kind in sections.items()}
    lines = [f"{json.dumps(name)}: {json.dumps(keys)}" for name, keys in sorted(classes.items())]
    body = ",\n".join(lines)
    return f'{{"names": {json.dumps(names, sort_keys=True)},\n"sections": {{\n{body}\n}}}}\n'


def _keys(kind: type[Config]) -> _Keys:
    """Return the keys of a class, other names of them among these."""
    keys: _Keys = {}
    for name, field in kind.model_fields.items():
        others = getattr(field.validation_alias, "choices", [field.validation_alias])
        converts = any(isinstance(each, BeforeValidator) for each in field.metadata)
        is_number = not converts and _kinds(field.annotation) <= {int, float, type(None)}
        keys |= {str(each): is_number for each in (name, field.alias, *others) if each}
    return keys


def _kinds(annotation: Any) -> set[Any]:
    """Return the plain types that a value may have."""
    if isinstance(annotation, type) or not get_args(annotation):
        return {annotation}
    if hasattr(annotation, "__metadata__"):
        return _kinds(get_args(annotation)[0])
    return {kind for each in get_args(annotation) for kind in _kinds(each)}
