"""The smallest model of every family in the zoo, and the keys that small models share."""

from __future__ import annotations

from typing import Any

SIZES: dict[str, Any] = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_heads": 2,
    "filter_size": 32,
}
FOUR_HEADS: dict[str, Any] = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_heads": 4,
    "filter_size": 48,
}
NO_DROPOUT: dict[str, Any] = {
    "dropout_rate": 0.0,
    "embedding_dropout_rate": 0.0,
    "attention_dropout_rate": 0.0,
}
TOKENS: dict[str, Any] = {"vocab_size": 40, "max_position_embeddings": 8}
TINY_MODELS: dict[str, dict[str, Any]] = {
    "gpt2": TOKENS,
    "llama": TOKENS | {"norm_type": "rmsnorm", "nonlinearity": "swiglu"},
    "gptj": TOKENS | {"rotary_dim": 4},
    "bert": TOKENS | {"max_predictions_per_seq": 3, "mask_token_id": 1},
    "esm2": TOKENS,
    "dit": {"vae": {"latent_size": (4, 8)}, "num_classes": 5},
}
