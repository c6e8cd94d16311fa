"""A small LLaMA: its keys here, its sizes in transformers, and models of transformers."""

from __future__ import annotations

from typing import Any

import torch
import transformers

from tests.support.models.tiny_models import NO_DROPOUT

OUR_SIZES = {
    "vocab_size": 40,
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_heads": 4,
    "filter_size": 48,
    "max_position_embeddings": 64,
}
LLAMA_KEYS = {
    **OUR_SIZES,
    **NO_DROPOUT,
    "name": "llama",
    "share_embedding_weights": False,
    "position_embedding_type": "rotary",
    "norm_type": "rmsnorm",
    "layer_norm_epsilon": 1e-6,
    "nonlinearity": "swiglu",
    "attention_module": "multiquery_attention",
    "extra_attention_params": {"num_kv_groups": 2},
    "use_projection_bias_in_attention": False,
    "use_ffn_bias_in_attention": False,
    "use_ffn_bias": False,
}
THEIR_SIZES = {
    "vocab_size": 40,
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 48,
    "max_position_embeddings": 64,
    "rms_norm_eps": 1e-6,
    "tie_word_embeddings": False,
    "attn_implementation": "eager",
    "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
}


def theirs(name: str, **sizes: Any) -> Any:
    """Return a model of transformers whose weights are large enough that every part matters."""
    torch.manual_seed(0)
    kind = getattr(transformers, name)
    model = kind(kind.config_class(**sizes)).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return model
