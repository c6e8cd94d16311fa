"""Families of Gemma: sandwiched norms that store their difference from 1, windows, caps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from modelzoo.converters.family import Family, require, rope_of, without
from modelzoo.converters.llama_families import (
    FULL,
    LLAMA,
    WITHOUT_FFN_BIAS,
    head_keys,
    llama_configuration,
    rope_keys,
)
from modelzoo.converters.weights import rule

_GATES = {"gelu": "geglu", "gelu_pytorch_tanh": "geglu_new"}
"""Our name of an activation."""


def _gemma_keys(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return keys of Gemma that are spelt otherwise, but for its rotation."""
    return {
        **head_keys(config),
        "nonlinearity": _GATES[config["hidden_activation"]],
        "attention_logits_alpha": (config["head_dim"] / config["query_pre_attn_scalar"]) ** 0.5,
        "embeddings_scale": config["hidden_size"] ** 0.5,
        "full_attention_layers": full_layers(config),
    }


def _gemma2_keys(config: Mapping[str, Any]) -> dict[str, Any]:
    return {**rope_keys(rope_of(config)), **_gemma_keys(config)}


def full_layers(config: Mapping[str, Any], every: int = 2) -> list[int]:
    """Return the layers of a config.json without a window: those stated, or of ``every`` the last.

    Raises:
        ConfigError: A layer is neither with nor without a window.
    """
    number = config["num_hidden_layers"]
    if number > _MOST_LAYERS:
        raise ValueError(f"{number} layers are more than {_MOST_LAYERS}")
    default = [FULL if layer % every == every - 1 else _WINDOWED for layer in range(number)]
    kinds = config.get("layer_types") or default
    if len(kinds) != number or not {FULL, _WINDOWED} >= set(kinds):
        require(config, "layer_types", default)
    return [layer for layer, kind in enumerate(kinds) if kind == FULL]


def layer_types(section: Mapping[str, Any]) -> list[str]:
    """Return ``layer_types`` of a section."""
    full = section["full_attention_layers"]
    return [FULL if i in full else _WINDOWED for i in range(section["num_hidden_layers"])]


def _gemma_configuration(section: Mapping[str, Any]) -> dict[str, Any]:
    config = llama_configuration(section)
    activations = {ours: theirs for theirs, ours in _GATES.items()}
    return {
        **config,
        "hidden_activation": activations[section["nonlinearity"]],
        "query_pre_attn_scalar": round(
            config["head_dim"] / section["attention_logits_alpha"] ** 2, 6
        ),
        "layer_types": layer_types(section),
    }


_WINDOWED = "sliding_attention"

_MOST_LAYERS = 10_000
"""More than any model has: a list of the layers of a lying file would fill the memory."""
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
    },
    required={"attention_bias": False, "use_bidirectional_attention": None},
    defaults={
        "max_position_embeddings": 8192,
        "rms_norm_eps": 1e-6,
        "sliding_window": 4096,
        "attn_logit_softcapping": 50.0,
        "final_logit_softcapping": 30.0,
        "hidden_activation": "gelu_pytorch_tanh",
        "hidden_act": None,
        "sliding_window_size": None,
        "query_pre_attn_scalar": 256,
        "head_dim": 256,
        "num_key_value_heads": 4,
        "tie_word_embeddings": True,
    },
    further_ours=_gemma2_keys,
    further_theirs=_gemma_configuration,
)


def _gemma3_keys(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return keys of Gemma 3 that are spelt otherwise: two rotations, every sixth layer full."""
    ropes = config.get("rope_parameters") or {
        FULL: rope_of(config),
        _WINDOWED: {"rope_theta": config.get("rope_local_base_freq", 10000.0)},
    }
    near = {"rope_type": "default", **ropes[_WINDOWED]}
    require(near, "rope_type", "default")
    every = config.get("sliding_window_pattern", config.get("_sliding_window_pattern", 6))
    return {
        **rope_keys(ropes[FULL]),
        **_gemma_keys(config),
        "window_rope_theta": near["rope_theta"],
        "full_attention_layers": full_layers(config, every),
    }


def _gemma3_configuration(section: Mapping[str, Any]) -> dict[str, Any]:
    config = _gemma_configuration(section)
    near = {"rope_theta": section["window_rope_theta"], "rope_type": "default"}
    return {**config, "rope_parameters": {FULL: config["rope_parameters"], _WINDOWED: near}}


GEMMA3 = replace(
    GEMMA2,
    model_type="gemma3_text",
    architecture="Gemma3ForCausalLM",
    name="gemma3",
    rules=(
        *GEMMA2.rules,
        *(
            rule(
                f"{_LAYER}.self_attn.{theirs}_norm.weight",
                f"{_OURS}.attention.{ours}_norm.weight",
                offset=1.0,
            )
            for theirs, ours in (("q", "query"), ("k", "key"))
        ),
    ),
    keys={**GEMMA2.keys, "attention_qk_norm_eps": "rms_norm_eps"},
    implied={**GEMMA2.implied, "attention_qk_norm_layer": "rmsnorm"},
    required={"attention_bias": False, "use_bidirectional_attention": False},
    defaults={
        **GEMMA2.defaults,
        "max_position_embeddings": 131072,
        "rope_theta": 1000000.0,
        "attn_logit_softcapping": None,
        "final_logit_softcapping": None,
    },
    further_ours=_gemma3_keys,
    further_theirs=_gemma3_configuration,
)
