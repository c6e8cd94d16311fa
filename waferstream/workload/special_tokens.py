"""Ids of the special tokens of a model of transformers, kept beside a params file.

No score depends on them, so no model section has them; programs that write text read them from
config.json, and take those of another model of the family where it has none.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from waferstream.workload.hugging_face import read_json

SPECIAL_TOKENS = "special_tokens"
"""State of a checkpoint with the ids of the model that it was converted from."""

_END = "_token_id"


def special_tokens(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys of a config.json that are ids, also those of the models in it."""
    found = {key: value for key, value in config.items() if key.endswith(_END)}
    inner = ((key, value) for key, value in config.items() if isinstance(value, Mapping))
    return found | {key: ids for key, value in inner if (ids := special_tokens(value))}


def with_special_tokens(config: Mapping[str, Any], ids: Mapping[str, Any]) -> dict[str, Any]:
    """Return a config.json with ids that it lacks."""
    changed = {**ids, **config}
    for key, inner in ids.items():
        if isinstance(inner, Mapping):
            changed[key] = with_special_tokens(config.get(key) or {}, inner)
    return changed


def special_tokens_file(params: Path) -> Path:
    """Return the path of the ids of a params file."""
    return params.with_suffix(".tokens.json")


def read_special_tokens(params: Path) -> Mapping[str, Any]:
    """Return the ids that lie beside a params file; none where there is no such file."""
    path = special_tokens_file(params)
    return read_json(path) if path.is_file() else {}
