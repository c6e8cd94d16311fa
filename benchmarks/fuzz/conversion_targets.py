"""The readers of ``waferstream checkpoint convert``: what others have written for transformers."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import torch

from benchmarks.fuzz.campaign import Target, through_file
from benchmarks.fuzz.mutations import of_bytes, of_trees
from modelzoo.converters.families import DECODERS
from modelzoo.converters.weights import Weights
from waferstream.workload.hugging_face import read_hf, read_json
from waferstream.workload.models import parameter_shapes

_SIZES = {"vocab_size": 5, "hidden_size": 4, "num_hidden_layers": 1, "num_heads": 2}
_INDEX = "pytorch_model.bin.index.json"


def conversion_targets(folder: Path) -> tuple[Target, ...]:
    """Return the readers of configurations, of weights, and of the index of their parts."""
    parts, configs = folder / "parts", [_config(name) for name in DECODERS]
    parts.mkdir()
    family, config = DECODERS["gpt2"], _config("gpt2")
    section = family.section(config)
    ours = {name: torch.zeros(shape) for name, shape in parameter_shapes(section).items()}
    weights = family.to_theirs(ours, section)
    names = [f"pytorch_model-0000{part}-of-00002.bin" for part in (1, 2)]
    halves = [dict(list(weights.items())[part::2]) for part in range(2)]
    for name, half in zip(names, halves, strict=True):
        (parts / name).write_bytes(_saved(half))
    index = {"weight_map": {key: names[part] for part in range(2) for key in halves[part]}}

    def convert(path: Path) -> object:
        return family.to_ours(read_hf(path), section)

    def convert_config(path: Path) -> object:
        found = read_json(path)
        own = DECODERS.get(str(found.get("model_type")), family)
        return own.to_ours(dict(weights), own.section(found))

    return (
        Target(
            "config of transformers",
            4,
            of_trees(configs, _json),
            through_file(folder / "config.json", convert_config),
        ),
        Target(
            "index of transformers",
            4,
            of_trees([index], _json),
            through_file(parts / _INDEX, convert),
        ),
        Target(
            "weights of transformers",
            4,
            of_bytes([_saved(weights)]),
            through_file(folder / "pytorch_model.bin", convert),
        ),
    )


def _config(model_type: str) -> dict[str, Any]:
    """Return a small config.json of a family."""
    family = DECODERS[model_type]
    sizes = {family.keys[ours]: value for ours, value in _SIZES.items()}
    more = {"head_dim": 2, "query_pre_attn_scalar": 2} if model_type == "gemma2" else {}
    positions = {family.keys["max_position_embeddings"]: 8}
    return {"model_type": model_type, **family.required, **sizes, **positions, **more}


def _saved(weights: Weights) -> bytes:
    buffer = io.BytesIO()
    torch.save(weights, buffer)
    return buffer.getvalue()


def _json(tree: Any) -> bytes:
    return json.dumps(tree, default=str, skipkeys=True).encode()
