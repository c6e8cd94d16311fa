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
    "mixtral": TOKENS
    | {
        "position_embedding_type": "rotary",
        "nonlinearity": "swiglu",
        "moe": {
            "num_experts": 4,
            "top_k": 2,
            "load_balancing_loss_coef": 0.02,
            "num_shared_experts": 1,
            "null_expert_bias": 0.5,
        },
    },
    "gemma2": TOKENS
    | {
        "position_embedding_type": "alibi",
        "alibi_trainable_slopes": True,
        "norm_first_sandwich": True,
        "embedding_layer_norm": True,
        "embeddings_scale": 4.0,
        "attention_logit_softcapping": 5.0,
        "final_logit_softcapping": 30.0,
        "attention_sliding_window_length": 3,
        "attention_sink_tokens": 1,
        "attention_qk_norm_layer": "rmsnorm",
    },
    "bloom": TOKENS | {"position_embedding_type": "relative"},
    "bert": TOKENS | {"max_predictions_per_seq": 3, "mask_token_id": 1},
    "esm2": TOKENS,
    "bert/classifier": TOKENS
    | {
        "num_labels": 3,
        "problem_type": "single_label_classification",
        "task_dropout": 0.0,
    },
    "bert/token_classifier": TOKENS | {"num_classes": 3, "encoder_output_dropout_rate": 0.0},
    "bert/extractive_summarization": TOKENS | {"max_cls_tokens": 3},
    "vision_transformer": {"image_size": (8, 12), "patch_size": (4, 4), "num_classes": 5},
    "dit": {"vae": {"latent_size": (4, 8)}, "num_classes": 5},
}


def tiny(name: str, dropout: float = 0.0) -> dict[str, Any]:
    """Return the section of the smallest model of a name, with the same rate for all dropout."""
    residual = "residual_dropout_rate" if name == "gptj" else "dropout_rate"
    rates = dict.fromkeys((residual, "embedding_dropout_rate", "attention_dropout_rate"), dropout)
    if name == "dit":
        rates["label_dropout_rate"] = dropout
    return {"name": name, **SIZES, **TINY_MODELS[name], **rates}
