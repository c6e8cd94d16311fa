"""Families with root-mean-square norms and rotary positions: LLaMA 1 to 3, Mistral, Gemma 2."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from modelzoo.converters.family import Family, require, rope_of
from modelzoo.converters.weights import rule

_LLAMA3 = ["low_freq_factor", "high_freq_factor", "original_max_position_embeddings"]
"""Arguments of the rotation of LLaMA 3.1 besides its factor, which have the same names here."""


def _rope_keys(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return our keys of the rotation; ConfigError for scalings that are not converted."""
    rope = rope_of(config)
    keys: dict[str, Any] = {"rope_theta": rope["rope_theta"]}
    if rope["rope_type"] != "llama3":
        require(rope, "rope_type", "default")
        return keys
    extra = {key: rope[key] for key in _LLAMA3}
    keys |= {"pos_scaling_type": "llama3", "pos_scaling_factor": rope["factor"]}
    return {**keys, "pos_scaling_extra_args": extra}


def _rope_of(section: Mapping[str, Any]) -> dict[str, Any]:
    """Return their parameters of the rotation."""
    rope = {"rope_theta": section["rope_theta"], "rope_type": "default"}
    if section["pos_scaling_factor"] == 1.0:
        return rope
    require(section, "pos_scaling_type", "llama3")
    extra = section["pos_scaling_extra_args"]
    return {**rope, "rope_type": "llama3", "factor": section["pos_scaling_factor"], **extra}


def _group_keys(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return our keys of keys and values that several queries share."""
    heads = config["num_attention_heads"]
    shared = config.get("num_key_value_heads") or heads
    if shared == heads:
        return {}
    groups = {"num_kv_groups": shared}
    return {"attention_module": "multiquery_attention", "extra_attention_params": groups}


def _llama_keys(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return keys of LLaMA that are spelt otherwise: rotation and shared heads."""
    if config.get("head_dim") is not None:
        require(config, "head_dim", config["hidden_size"] // config["num_attention_heads"])
    return {**_rope_keys(config), **_group_keys(config)}


def _llama_configuration(section: Mapping[str, Any]) -> dict[str, Any]:
    extra = section["extra_attention_params"] or {}
    shared = extra.get("num_kv_groups", section["num_heads"])
    return {"num_key_value_heads": shared, "rope_parameters": _rope_of(section)}


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
    further_ours=_llama_keys,
    further_theirs=_llama_configuration,
)

_WITHOUT_FFN_BIAS = {ours: key for ours, key in LLAMA.keys.items() if ours != "use_ffn_bias"}

MISTRAL = replace(
    LLAMA,
    model_type="mistral",
    architecture="MistralForCausalLM",
    name="mistral",
    keys={
        **_WITHOUT_FFN_BIAS,
        "attention_sliding_window_length": "sliding_window",
    },
    implied={**LLAMA.implied, "use_ffn_bias": False},
    required={"hidden_act": "silu"},
    defaults={**LLAMA.defaults, "max_position_embeddings": 131072, "sliding_window": 4096},
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
    keys=_WITHOUT_FFN_BIAS,
    implied={**LLAMA.implied, "use_ffn_bias": False, "use_projection_bias_in_attention": True},
    required={"hidden_act": "silu", "use_sliding_window": False},
    defaults={**LLAMA.defaults, "max_position_embeddings": 32768},
)


def _qwen3_keys(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return keys of Qwen 3 that are spelt otherwise: its heads may be wider than the model."""
    head = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    return {
        **_rope_keys(config),
        **_group_keys(config),
        "attention_inner_dim": head * config["num_attention_heads"],
    }


def _qwen3_configuration(section: Mapping[str, Any]) -> dict[str, Any]:
    head = section["attention_inner_dim"] // section["num_heads"]
    return {**_llama_configuration(section), "head_dim": head}


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
    keys={**_WITHOUT_FFN_BIAS, "attention_qk_norm_eps": "rms_norm_eps"},
    implied={**LLAMA.implied, "use_ffn_bias": False, "attention_qk_norm_layer": "rmsnorm"},
    required={"hidden_act": "silu", "attention_bias": False, "use_sliding_window": False},
    defaults={**LLAMA.defaults, "max_position_embeddings": 32768},
    further_ours=_qwen3_keys,
    further_theirs=_qwen3_configuration,
)


def _gemma_keys(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return keys of Gemma 2 that are spelt otherwise."""
    head = config["head_dim"]
    kinds = config.get("layer_types")
    if kinds is not None:
        pattern = ["sliding_attention", "full_attention"] * len(kinds)
        require(config, "layer_types", pattern[: len(kinds)])
    scale = config["query_pre_attn_scalar"]
    return {
        **_rope_keys(config),
        **_group_keys(config),
        "attention_inner_dim": head * config["num_attention_heads"],
        "attention_logits_alpha": (head / scale) ** 0.5,
        "embeddings_scale": config["hidden_size"] ** 0.5,
    }


def _gemma_configuration(section: Mapping[str, Any]) -> dict[str, Any]:
    head = section["attention_inner_dim"] // section["num_heads"]
    kinds = ["sliding_attention", "full_attention"] * section["num_hidden_layers"]
    return {
        **_llama_configuration(section),
        "head_dim": head,
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
        **_WITHOUT_FFN_BIAS,
        "attention_sliding_window_length": "sliding_window",
        "attention_logit_softcapping": "attn_logit_softcapping",
        "final_logit_softcapping": "final_logit_softcapping",
    },
    implied={
        **LLAMA.implied,
        "nonlinearity": "geglu",
        "use_ffn_bias": False,
        "norm_first_sandwich": True,
        "sliding_window_every_other_decoder_layer": True,
        "sliding_window_every_other_decoder_layer_pattern": "sliding_window_first",
    },
    required={"attention_bias": False, "hidden_activation": "gelu"},
    defaults={
        "max_position_embeddings": 8192,
        "rms_norm_eps": 1e-6,
        "sliding_window": 4096,
        "attn_logit_softcapping": 50.0,
        "final_logit_softcapping": 30.0,
        "query_pre_attn_scalar": 256,
        "head_dim": 256,
        "tie_word_embeddings": True,
    },
    further_ours=_gemma_keys,
    further_theirs=_gemma_configuration,
)
