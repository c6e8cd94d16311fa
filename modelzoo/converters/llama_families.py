"""Families with root-mean-square norms and rotary positions: LLaMA, Mistral, Phi-3, Qwen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from modelzoo.converters.family import Family, require, rope_of, without
from modelzoo.converters.weights import rule

FULL = "full_attention"
"""What ``layer_types`` calls a layer without a window."""

_LENGTH = "original_max_position_embeddings"
_SCALINGS = {
    "llama3": ("low_freq_factor", "high_freq_factor", _LENGTH),
    "yarn": ("beta_fast", "beta_slow", "truncate", _LENGTH),
    "linear": (),
    "longrope": ("short_factor", "long_factor", "attention_factor", _LENGTH),
}
"""Arguments of the scalings of a rotation besides their factor, which have the same names here."""


def rope_keys(rope: Mapping[str, Any]) -> dict[str, Any]:
    """Return our keys of a rotation; ConfigError for scalings that are not converted."""
    keys: dict[str, Any] = {"rope_theta": rope["rope_theta"]}
    kind = rope["rope_type"]
    if kind not in _SCALINGS:
        require(rope, "rope_type", "default")
        return keys
    for key in {"mscale", "mscale_all_dim", "attention_factor"}.difference(_SCALINGS[kind]):
        require(rope, key, None)
    if kind == "longrope":  # divisors that differ change for a sequence as it grows
        require(rope, "short_factor", rope["long_factor"])
        require({"attention_factor": type(rope["attention_factor"])}, "attention_factor", float)
    extra = {key: rope[key] for key in _SCALINGS[kind] if key in rope or key == _LENGTH}
    keys |= {
        "pos_scaling_type": kind,
        "pos_scaling_factor": 1.0 if kind == "longrope" else rope["factor"],
    }
    return {**keys, "pos_scaling_extra_args": extra}


def rope_configuration(section: Mapping[str, Any]) -> dict[str, Any]:
    """Return their parameters of the rotation."""
    rope = {"rope_theta": section["rope_theta"], "rope_type": "default"}
    kind, factor = section["pos_scaling_type"], section["pos_scaling_factor"]
    if factor == 1.0 and kind != "longrope":
        return rope
    if kind not in _SCALINGS:
        require(section, "pos_scaling_type", "llama3")
    return {**rope, "rope_type": kind, "factor": factor, **section["pos_scaling_extra_args"]}


def head_keys(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return our keys of heads: of any width, with keys and values that several queries share."""
    heads = config["num_attention_heads"]
    width = config.get("head_dim") or config["hidden_size"] // heads
    keys: dict[str, Any] = {"attention_inner_dim": width * heads}
    shared = config.get("num_key_value_heads") or heads
    if shared == heads:
        return keys
    groups = {"num_kv_groups": shared}
    return {**keys, "attention_module": "multiquery_attention", "extra_attention_params": groups}


def llama_keys(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return keys of LLaMA that are spelt otherwise: rotation and heads."""
    return {**rope_keys(rope_of(config)), **head_keys(config)}


def qwen_keys(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return keys of Qwen that are spelt otherwise; ConfigError if a layer has a window."""
    kinds = {FULL, *(config.get("layer_types") or ())}
    require({"layer_types": kinds}, "layer_types", {FULL})
    return llama_keys(config)


def llama_configuration(section: Mapping[str, Any]) -> dict[str, Any]:
    """Return their keys of a section that LLaMA spells otherwise: rotation and heads."""
    extra = section["extra_attention_params"] or {}
    width = section["attention_inner_dim"] or section["hidden_size"]
    return {
        "num_key_value_heads": extra.get("num_kv_groups", section["num_heads"]),
        "head_dim": width // section["num_heads"],
        "rope_parameters": rope_configuration(section),
    }


LLAMA = Family(
    "llama",
    "LlamaForCausalLM",
    "llama",
    rules=(
        rule("model.embed_tokens.weight", "embedding.weight"),
        rule("model.layers.{i}.input_layernorm.weight", "decoder.{i}.attention_norm.weight"),
        rule("model.layers.{i}.self_attn.q_proj.weight", "decoder.{i}.attention.query.weight"),
        rule("model.layers.{i}.self_attn.k_proj.weight", "decoder.{i}.attention.key.weight"),
        rule("model.layers.{i}.self_attn.v_proj.weight", "decoder.{i}.attention.value.weight"),
        rule("model.layers.{i}.self_attn.o_proj.weight", "decoder.{i}.attention.output.weight"),
        rule(
            "model.layers.{i}.post_attention_layernorm.weight",
            "decoder.{i}.feed_forward_norm.weight",
        ),
        rule("model.layers.{i}.mlp.up_proj.{p}", "decoder.{i}.feed_forward.up.{p}"),
        rule("model.layers.{i}.mlp.gate_proj.{p}", "decoder.{i}.feed_forward.gate.{p}"),
        rule("model.layers.{i}.mlp.down_proj.{p}", "decoder.{i}.feed_forward.down.{p}"),
        rule("model.norm.weight", "norm.weight"),
        rule("lm_head.weight", "head.weight"),
    ),
    keys={
        "vocab_size": "vocab_size",
        "max_position_embeddings": "max_position_embeddings",
        "hidden_size": "hidden_size",
        "num_hidden_layers": "num_hidden_layers",
        "num_heads": "num_attention_heads",
        "filter_size": "intermediate_size",
        "layer_norm_epsilon": "rms_norm_eps",
        "initializer_range": "initializer_range",
        "attention_dropout_rate": "attention_dropout",
        "use_ffn_bias": "mlp_bias",
        "share_embedding_weights": "tie_word_embeddings",
    },
    implied={
        "position_embedding_type": "rotary",
        "rotary_dim": None,
        "norm_type": "rmsnorm",
        "nonlinearity": "swiglu",
        "use_projection_bias_in_attention": False,
        "use_ffn_bias_in_attention": False,
        "use_bias_in_output": False,
        "dropout_rate": 0.0,
        "embedding_dropout_rate": 0.0,
    },
    required={"hidden_act": "silu", "attention_bias": False, "pretraining_tp": 1},
    defaults={
        "max_position_embeddings": 2048,
        "rms_norm_eps": 1e-6,
        "mlp_bias": False,
        "tie_word_embeddings": False,
    },
    further_ours=llama_keys,
    further_theirs=llama_configuration,
)

WITHOUT_FFN_BIAS = without(LLAMA.keys, "use_ffn_bias")

MISTRAL = replace(
    LLAMA,
    model_type="mistral",
    architecture="MistralForCausalLM",
    name="mistral",
    keys={
        **WITHOUT_FFN_BIAS,
        "attention_sliding_window_length": "sliding_window",
    },
    implied={**LLAMA.implied, "use_ffn_bias": False},
    required={"hidden_act": "silu"},
    defaults={
        **LLAMA.defaults,
        "max_position_embeddings": 131072,
        "sliding_window": 4096,
        "num_key_value_heads": 8,
    },
)


_FUSED = ("query", "key", "value", "gate", "up")
"""Projections of Phi-3 that are one weight with others."""

_PART = "partial_rotary_factor"


def _phi3_keys(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return keys of Phi-3 that are spelt otherwise: a part of each head may be rotated."""
    rope = rope_of(config)
    part = rope.get(_PART, config.get(_PART, 1.0))
    head = config["hidden_size"] // config["num_attention_heads"]
    return {**llama_keys(config), "rotary_dim": int(head * part)}


def _phi3_configuration(section: Mapping[str, Any]) -> dict[str, Any]:
    config = llama_configuration(section)
    part = (section["rotary_dim"] or config["head_dim"]) / config["head_dim"]
    return {**config, "rope_parameters": {**config["rope_parameters"], _PART: part}}


PHI3 = replace(
    MISTRAL,
    model_type="phi3",
    architecture="Phi3ForCausalLM",
    name="phi3",
    rules=(
        *(each for each in LLAMA.rules if each.ours[0].split(".")[-2] not in _FUSED),
        rule(
            "model.layers.{i}.self_attn.qkv_proj.weight",
            *(f"decoder.{{i}}.attention.{part}.weight" for part in ("query", "key", "value")),
        ),
        rule(
            "model.layers.{i}.mlp.gate_up_proj.weight",
            *(f"decoder.{{i}}.feed_forward.{part}.weight" for part in ("gate", "up")),
        ),
    ),
    implied=without(MISTRAL.implied, "rotary_dim"),
    defaults={
        **LLAMA.defaults,
        "max_position_embeddings": 4096,
        "rms_norm_eps": 1e-5,
        _LENGTH: None,
    },
    further_ours=_phi3_keys,
    further_theirs=_phi3_configuration,
)

_BIASED = ("query", "key", "value")
"""Projections of Qwen 2 that have a bias."""

QWEN2 = replace(
    LLAMA,
    model_type="qwen2",
    architecture="Qwen2ForCausalLM",
    name="qwen2",
    rules=(
        *(each for each in LLAMA.rules if each.ours[0].split(".")[-2] not in _BIASED),
        rule("model.layers.{i}.self_attn.q_proj.{p}", "decoder.{i}.attention.query.{p}"),
        rule("model.layers.{i}.self_attn.k_proj.{p}", "decoder.{i}.attention.key.{p}"),
        rule("model.layers.{i}.self_attn.v_proj.{p}", "decoder.{i}.attention.value.{p}"),
    ),
    keys=WITHOUT_FFN_BIAS,
    implied={**LLAMA.implied, "use_ffn_bias": False, "use_projection_bias_in_attention": True},
    required={"hidden_act": "silu", "use_sliding_window": False},
    further_ours=qwen_keys,
    defaults={**LLAMA.defaults, "sliding_window": None, "max_position_embeddings": 32768},
)


QWEN3 = replace(
    LLAMA,
    model_type="qwen3",
    architecture="Qwen3ForCausalLM",
    name="qwen3",
    rules=(
        *LLAMA.rules,
        rule("model.layers.{i}.self_attn.q_norm.weight", "decoder.{i}.attention.query_norm.weight"),
        rule("model.layers.{i}.self_attn.k_norm.weight", "decoder.{i}.attention.key_norm.weight"),
    ),
    keys={**WITHOUT_FFN_BIAS, "attention_qk_norm_eps": "rms_norm_eps"},
    implied={**LLAMA.implied, "use_ffn_bias": False, "attention_qk_norm_layer": "rmsnorm"},
    required={"hidden_act": "silu", "attention_bias": False, "use_sliding_window": False},
    further_ours=qwen_keys,
    defaults={
        **LLAMA.defaults,
        "sliding_window": None,
        "max_position_embeddings": 32768,
        "head_dim": 128,
    },
)
