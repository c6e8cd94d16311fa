"""Families of Gemma: sandwiched norms that store their difference from 1, windows, caps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from modelzoo.converters.family import Family, require, without
from modelzoo.converters.llama_families import (
    LLAMA,
    WITHOUT_FFN_BIAS,
    group_keys,
    llama_configuration,
    rope_keys,
)
from modelzoo.converters.weights import rule

_GATES = {"gelu": "geglu", "gelu_pytorch_tanh": "geglu_new"}
"""Our name of an activation."""


def _gemma_keys(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return keys of Gemma 2 that are spelt otherwise."""
    head = config["head_dim"]
    kinds = config.get("layer_types")
    if kinds is not None:
        pattern = ["sliding_attention", "full_attention"] * len(kinds)
        require(config, "layer_types", pattern[: len(kinds)])
    scale = config["query_pre_attn_scalar"]
    return {
        **rope_keys(config),
        **group_keys(config),
        "nonlinearity": _GATES[config["hidden_activation"]],
        "attention_inner_dim": head * config["num_attention_heads"],
        "attention_logits_alpha": (head / scale) ** 0.5,
        "embeddings_scale": config["hidden_size"] ** 0.5,
    }


def _gemma_configuration(section: Mapping[str, Any]) -> dict[str, Any]:
    head = section["attention_inner_dim"] // section["num_heads"]
    kinds = ["sliding_attention", "full_attention"] * section["num_hidden_layers"]
    return {
        **llama_configuration(section),
        "head_dim": head,
        "hidden_activation": {ours: theirs for theirs, ours in _GATES.items()}[
            section["nonlinearity"]
        ],
        "query_pre_attn_scalar": round(head / section["attention_logits_alpha"] ** 2, 6),
        "layer_types": kinds[: section["num_hidden_layers"]],
    }


_LAYER, _OURS = "model.layers.{i}", "decoder.{i}"

GEMMA2 = Family(
    "gemma2",
    "Gemma2ForCausalLM",
    "gemma2",
    rules=(
        *(each for each in LLAMA.rules if "norm" not in each.theirs),
        rule(f"{_LAYER}.input_layernorm.weight", f"{_OURS}.attention_norm.weight", offset=1.0),
        rule(
            f"{_LAYER}.post_attention_layernorm.weight",
            f"{_OURS}.attention_output_norm.weight",
            offset=1.0,
        ),
        rule(
            f"{_LAYER}.pre_feedforward_layernorm.weight",
            f"{_OURS}.feed_forward_norm.weight",
            offset=1.0,
        ),
        rule(
            f"{_LAYER}.post_feedforward_layernorm.weight",
            f"{_OURS}.feed_forward_output_norm.weight",
            offset=1.0,
        ),
        rule("model.norm.weight", "norm.weight", offset=1.0),
    ),
    keys={
        **WITHOUT_FFN_BIAS,
        "attention_sliding_window_length": "sliding_window",
        "attention_logit_softcapping": "attn_logit_softcapping",
        "final_logit_softcapping": "final_logit_softcapping",
    },
    implied={
        **without(LLAMA.implied, "nonlinearity"),
        "use_ffn_bias": False,
        "norm_first_sandwich": True,
        "sliding_window_every_other_decoder_layer": True,
        "sliding_window_every_other_decoder_layer_pattern": "sliding_window_first",
    },
    required={"attention_bias": False},
    defaults={
        "max_position_embeddings": 8192,
        "rms_norm_eps": 1e-6,
        "sliding_window": 4096,
        "attn_logit_softcapping": 50.0,
        "final_logit_softcapping": 30.0,
        "hidden_activation": "gelu_pytorch_tanh",
        "query_pre_attn_scalar": 256,
        "head_dim": 256,
        "tie_word_embeddings": True,
    },
    further_ours=_gemma_keys,
    further_theirs=_gemma_configuration,
)
