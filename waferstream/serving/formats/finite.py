"""Schemas that refer to themselves without an end, which no JSON fits."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

MOST_REFERENCES = 300
"""The most places that a schema may refer to."""


def is_finite(schema: Mapping[str, Any], references: Collection[str]) -> bool:
    """Return whether some JSON that ends fits a schema, as far as its references decide that.

    Args:
        schema: The whole schema.
        references: All that it refers to, such as ``#/$defs/a``.
    """
    left = {each: _at(schema, each) for each in references}
    ended: set[str] = set()
    while found := {each for each, part in left.items() if _ends(part, ended)}:
        ended |= found
        left = {each: part for each, part in left.items() if each not in found}
    return _ends(schema, ended)


def _ends(part: object, ended: Collection[str]) -> bool:
    """Return whether JSON of a part ends, if only that of some references does."""
    if not isinstance(part, Mapping) or "enum" in part or "const" in part:
        return part is not False
    reference = part.get("$ref")
    if isinstance(reference, str) and reference not in ended:
        return False
    choices = [some for name in ("anyOf", "oneOf") if (some := _list(part, name))]
    return all(_ends(each, ended) for each in _needed(part)) and all(
        any(_ends(each, ended) for each in some) for some in choices
    )


def _needed(part: Mapping[str, Any]) -> list[object]:
    """Return the parts of a part without which no JSON fits it."""
    needed = _list(part, "allOf")
    if part.get("type") == "array" and part.get("minItems"):
        needed = [*needed, part.get("items")]
    properties = part.get("properties")
    if part.get("type") == "object" and isinstance(properties, Mapping):
        names = [name for name in _list(part, "required") if isinstance(name, str)]
        needed = [*needed, *(properties.get(name) for name in names)]
    return needed


def _list(part: Mapping[str, Any], name: str) -> list[object]:
    """Return a list of a part; none if it is something else, which is another fault."""
    value = part.get(name)
    return value if isinstance(value, list) else []


def _at(schema: object, reference: str) -> object:
    """Return the part that a reference names, None if it is not in the schema."""
    part = schema
    for name in reference.removeprefix("#").split("/")[1:]:
        key = name.replace("~1", "/").replace("~0", "~")
        part = part.get(key) if isinstance(part, Mapping) else None
    return part
