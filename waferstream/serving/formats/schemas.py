"""JSON that answers must be, as part of a grammar of llguidance."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from waferstream.core.errors import ConfigError
from waferstream.serving.formats.finite import MOST_REFERENCES, is_finite

MOST_CHARACTERS = 200_000
"""The longest schema, as OpenAI's service counts its names and values."""

MOST_LEVELS = 64
"""How deep a schema may be."""

MOST_ITEMS = 10_000
"""The largest number of items, properties or characters that a schema may count."""

_COUNTS = (
    "minItems", "maxItems", "minLength", "maxLength", "minProperties", "maxProperties",
    "minContains", "maxContains",
)  # fmt: skip

Spacing = Mapping[str, str | bool]
"""Options of llguidance."""

ON_A_LINE: Spacing = {
    "whitespace_flexible": False, "item_separator": ", ", "key_separator": ": ",
}  # fmt: skip
"""As Python writes JSON, and so models their calls."""

LAID_OUT: Spacing = {"whitespace_flexible": True, "whitespace_pattern": "[ \\n]{0,24}"}
"""As a model lays out JSON: a line for each item or none, but no space without an end."""


def json_term(schema: Mapping[str, Any], spacing: Spacing) -> str:
    """Return the term of a grammar that a JSON of a schema is.

    Raises:
        ConfigError: The schema is too large to compile, or what fits it has no end.
    """
    text = json.dumps({**schema, "x-guidance": spacing})
    if len(text) > MOST_CHARACTERS:
        raise _too_large(f"{len(text)} characters", f"at most {MOST_CHARACTERS}")
    references: set[str] = set()
    for level, part in _parts(schema):
        if isinstance(reference := part.get("$ref"), str):
            references.add(reference)
        if level > MOST_LEVELS:
            raise _too_large(f"more than {MOST_LEVELS} levels", f"at most {MOST_LEVELS}")
        for name in _COUNTS:
            if isinstance(value := part.get(name), int) and value > MOST_ITEMS:
                raise _too_large(f"{name} {value}", f"at most {MOST_ITEMS}")
    if len(references) > MOST_REFERENCES:
        raise _too_large(f"{len(references)} references", f"at most {MOST_REFERENCES}")
    if not is_finite(schema, references):
        raise ConfigError(
            "an answer must be able to fit its format",
            code="format-not-possible",
            value="the schema requires itself, so that no JSON that fits it ends",
            remedy="let a part that refers to itself be left out, null or an empty array",
        )
    return f"%json {text}"


def _parts(schema: Mapping[str, Any]) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Yield all objects in a schema, with their depth."""
    waiting: list[tuple[int, object]] = [(1, schema)]
    while waiting:
        level, part = waiting.pop()
        if isinstance(part, Mapping):
            yield level, part
            waiting += [(level + 1, each) for each in part.values()]
        elif isinstance(part, list):
            waiting += [(level + 1, each) for each in part]


def _too_large(value: str, rule: str) -> ConfigError:
    return ConfigError(
        "a schema must be small enough to compile",
        code="schema-too-large",
        value=value,
        rule=rule,
        remedy="leave bounds out, or split it into several requests",
    )
