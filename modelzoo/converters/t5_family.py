"""T5 and its relatives: an encoder and a decoder."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from modelzoo.converters.family import Family, require
from modelzoo.converters.weights import Rule, Weights, rule

_ACTIVATIONS = {
    "relu": "relu",
    "gated-gelu": "geglu_new",
    "gated-relu": "reglu",
    "gated-silu": "swiglu",
}
"""Ours by ``feed_forward_proj``; T5 means the approximation by tanh with ``gated-gelu``."""


def _attention(stack: str, layer: int, theirs: str, ours: str) -> tuple[Rule, ...]:
    """Return the rules of an attention and the norm before it."""
    start = f"{stack}.block.{{i}}.layer.{layer}"
    return (
        rule(f"{start}.layer_norm.weight", f"{stack}.{{i}}.{ours}_norm.weight"),
        *(
            rule(f"{start}.{theirs}.{part[0]}.weight", f"{stack}.{{i}}.{ours}.{part}.weight")
            for part in ("query", "key", "value", "output")
        ),
    )


def _feed_forward(stack: str, layer: int) -> tuple[Rule, ...]:
    """Return the rules of a feed-forward network, gated or not, and the norm before it."""
    start, ours = f"{stack}.block.{{i}}.layer.{layer}", f"{stack}.{{i}}.feed_forward"
    dense = f"{start}.DenseReluDense"
    plain = ("encoder_nonlinearity", "relu")
    return (
        rule(f"{start}.layer_norm.weight", f"{ours}_norm.weight"),
        rule(f"{dense}.wi.weight", f"{ours}.up.weight", only=plain),
        rule(f"{dense}.wi_0.weight", f"{ours}.gate.weight"),
        *(
            rule(f"{dense}.wi_1.weight", f"{ours}.up.weight", only=("encoder_nonlinearity", gate))
            for gate in _ACTIVATIONS.values()
            if gate != "relu"
        ),
        rule(f"{dense}.wo.weight", f"{ours}.down.weight"),
    )


def _t5_keys(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return keys of T5 that are spelt otherwise; ConfigError for what is not computed here.

    A head that is not scaled is one of its own here; transformers 5 says that apart.
    """
    kind = config["feed_forward_proj"]
    if kind not in _ACTIVATIONS:
        require(config, "feed_forward_proj", "relu")
    gate, is_scaled = _ACTIVATIONS[kind], config.get("scale_decoder_outputs")
    return {
        "share_embedding_weights": config["tie_word_embeddings"] and is_scaled is not False,
        "encoder_nonlinearity": gate,
        "decoder_nonlinearity": gate,
        "decoder_num_hidden_layers": config.get("num_decoder_layers") or config["num_layers"],
    }


def _t5_configuration(section: Mapping[str, Any]) -> dict[str, Any]:
    """Return their keys of a section; ConfigError for stacks that differ."""
    gate = section["encoder_nonlinearity"]
    if section["decoder_nonlinearity"] is not None:
        require(section, "decoder_nonlinearity", gate)
    kinds = {ours: theirs for theirs, ours in _ACTIVATIONS.items()}
    if gate not in kinds:
        require(section, "encoder_nonlinearity", "relu")
    layers = section["decoder_num_hidden_layers"] or section["encoder_num_hidden_layers"]
    return {"feed_forward_proj": kinds[gate], "num_decoder_layers": layers}


def _with_head(weights: Weights) -> Weights:
    """Return weights with those of the head, which are the embedding's where a file lacks them."""
    shared = weights.get("shared.weight")
    return weights if shared is None else {"lm_head.weight": shared, **weights}


_BIAS = "block.0.layer.0.SelfAttention.relative_attention_bias.weight"

T5 = Family(
    "t5",
    "T5ForConditionalGeneration",
    "t5",
    rules=(
        rule("shared.weight", "embedding.weight"),
        *(
            rule(f"{stack}.{_BIAS}", f"{stack}_bias.table.weight")
            for stack in ("encoder", "decoder")
        ),
        *_attention("encoder", 0, "SelfAttention", "attention"),
        *_feed_forward("encoder", 1),
        rule("encoder.final_layer_norm.weight", "encoder_norm.weight"),
        *_attention("decoder", 0, "SelfAttention", "attention"),
        *_attention("decoder", 1, "EncDecAttention", "cross_attention"),
        *_feed_forward("decoder", 2),
        rule("decoder.final_layer_norm.weight", "decoder_norm.weight"),
        rule("lm_head.weight", "head.weight"),
    ),
    keys={
        "src_vocab_size": "vocab_size",
        "d_model": "d_model",
        "d_kv": "d_kv",
        "d_ff": "d_ff",
        "num_heads": "num_heads",
        "encoder_num_hidden_layers": "num_layers",
        "relative_attention_num_buckets": "relative_attention_num_buckets",
        "dropout_rate": "dropout_rate",
        "layer_norm_epsilon": "layer_norm_epsilon",
        "share_embedding_weights": "tie_word_embeddings",
    },
    implied={
        "extra_ids": 0,
        "share_encoder_decoder_embedding": True,
        "position_embedding_type": "relative",
        "norm_type": "rmsnorm",
        "use_pre_encoder_decoder_layer_norm": True,
        "use_projection_bias_in_attention": False,
        "use_ffn_bias": False,
        "use_transformer_initialization": False,
    },
    required={"relative_attention_max_distance": 128},
    defaults={
        "vocab_size": 32128,
        "d_model": 512,
        "d_kv": 64,
        "d_ff": 2048,
        "num_layers": 6,
        "num_heads": 8,
        "relative_attention_num_buckets": 32,
        "dropout_rate": 0.1,
        "layer_norm_epsilon": 1e-6,
        "feed_forward_proj": "relu",
        "tie_word_embeddings": True,
        "is_encoder_decoder": True,
        "n_positions": None,
        "dense_act_fn": None,
        "is_gated_act": None,
        "output_past": None,
    },
    further_ours=_t5_keys,
    further_theirs=_t5_configuration,
    unpacked=_with_head,
    duplicates={
        "encoder.embed_tokens.weight": "shared.weight",
        "decoder.embed_tokens.weight": "shared.weight",
    },
    unread=("decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.",),
)
