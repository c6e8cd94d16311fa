"""Ids of the special tokens of a model of transformers, and its tokenizer, beside a params file.

No score depends on the ids, so no model section has them; programs that write text read them from
config.json, and take those of another model of the family where it has none. A checkpoint that was
converted, or trained from such a one, has them, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from waferstream.checkpoint.reader import Reader
from waferstream.workload.hugging_face import read_json
from waferstream.workload.weight_kinds import Kind, kind_of

SPECIAL_TOKENS = "special_tokens"
"""State of a checkpoint with the ids of the model that it was converted from."""

TOKENIZER_FILES = (
    "tokenizer.json", "tokenizer_config.json", "tokenizer.model", "special_tokens_map.json",
    "added_tokens.json", "vocab.json", "vocab.txt", "merges.txt", "spiece.model",
    "sentencepiece.bpe.model", "chat_template.jinja", "chat_template.json",
    "generation_config.json",
)  # fmt: skip
"""What transformers writes of a tokenizer, and of how texts are written, in any folder."""

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


def read_special_tokens(params: Path, checkpoint: Path | None = None) -> Mapping[str, Any]:
    """Return the ids that lie beside a params file, else those in a checkpoint; none without."""
    path = special_tokens_file(params)
    if path.is_file():
        return read_json(path)
    if checkpoint is None or kind_of(checkpoint) is not Kind.OURS:
        return {}
    ids: Mapping[str, Any] = Reader(checkpoint).objects.get(SPECIAL_TOKENS, {})
    return ids


def tokenizer_files(folder: Path) -> list[Path]:
    """Return the files of a tokenizer in a folder."""
    return [folder / name for name in TOKENIZER_FILES if (folder / name).is_file()]
