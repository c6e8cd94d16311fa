"""Small models whose sections in params.yaml have a form of their own, beside those of tiny_models."""

from __future__ import annotations

from typing import Any

from tests.support.models.multimodal import LLAVA, SIMPLE
from tests.support.models.tiny_models import NO_DROPOUT, SIZES, TINY_MODELS, TOKENS

SEQUENCES: dict[str, Any] = {
    "src_vocab_size": 30,
    "d_model": 16,
    "d_kv": 6,
    "d_ff": 32,
    "num_heads": 2,
    "encoder_num_hidden_layers": 1,
    "decoder_num_hidden_layers": 2,  # the second reads the position bias of the first
    "src_max_position_embeddings": 8,
    "tgt_max_position_embeddings": 8,
    "dropout_rate": 0.0,
}
FIXED = {"position_embedding_type": "fixed", "use_pre_encoder_decoder_layer_norm": False}


def section_of(name: str) -> dict[str, Any]:
    """Return a small model without dropout."""
    if name in ("llava", "multimodal_simple"):
        section, part = (LLAVA, "") if name == "llava" else (SIMPLE, ".image_model_list")
        return {**section, "freeze": [f"^image_model{part}"]}
    if name == "fc_mnist":
        return {"name": name, "hidden_sizes": [16, 8], "activation_fn": "relu"}
    if name == "dpo":
        policy = {"name": "mistral", **SIZES, **NO_DROPOUT, **TOKENS}
        return {"name": name, "policy_model": policy, "dpo": {"beta": 0.1}}
    if name == "dpr":
        return {"name": name, "encoder": {**SIZES, **NO_DROPOUT, **TOKENS}, "group_size": 2}
    if name in ("t5", "transformer"):
        own = {"extra_ids": 4} if name == "t5" else FIXED
        return {"name": name, **SEQUENCES, **own}
    return {"name": name, **SIZES, **NO_DROPOUT, **TINY_MODELS[name]}
