"""Decoders with patterns of keys, memory tokens and fixed experts train as a plain loop does."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from scripts import reference_loop
from tests.support.nightly import nightly
from tests.support.runs.tiny_training import GPT, LOADER, Shape, init_config, train_on_cluster
from waferstream.workload.data import build_source

FIXED = {"local_attn_ctx": 4, "num_verts": 2, "vert_size": 1, "different_layout_per_head": True}
MEMORY = {
    "attn_memory_chunk_size": 3, "num_memory_tokens_per_chunk": 2, "memory_token_id": 1,
    "add_qkv_memory_weights": True, "add_extra_embedding": True, "add_chunked_attn_mask": True,
}  # fmt: skip
EXPERTS = {"num_experts": 4, "top_k": 1}
GROUPS = {
    "matrices": {"param_filter_patterns": ["*ffn*linear_layer*weight", "*attention*"], "scale": 0.5}
}


MODELS: dict[str, dict[str, Any]] = {
    "hash": {"moe": EXPERTS | {"routing_algorithm": "hash", "null_expert_bias": 0.5}},
    "fixed": {"fixed_sparse_attention": FIXED},
    "columns": {
        "attention_chunk_size": 4, "attention_vertical_column_spacing": 4,
        "attention_vertical_column_width": 1,
    },
    "memory": {"position_embedding_type": "rotary", "memory_tokens": MEMORY},
    "uniform": {"moe": EXPERTS | {"routing_algorithm": "uniform", "top_k": 2}},
    "sinkhorn": {
        "moe": EXPERTS | {
            "router_selection_nonlinearity": "sinkhorn", "sinkhorn_n_iters": 2,
            "probability_before_ffn": True,
        },
    },
    "groups": {"lr_adjustment_groups": GROUPS},
}  # fmt: skip


@pytest.mark.parametrize("name", ["hash", *nightly(*list(MODELS)[1:])])
def test_training_equals_the_loop(name: str) -> None:
    """Bit for bit, on two systems."""
    init = init_config(GPT | MODELS[name])
    source = build_source(LOADER, "test")
    model = reference_loop.train(init, map(source.batch, range(3)), source.batch_size)
    assert reference_loop.weights_sha256(model) == train_on_cluster(init, Shape(2))
    assert all(torch.isfinite(parameter).all() for parameter in model.parameters())
