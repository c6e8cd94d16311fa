"""Families whose feed-forward networks are experts: Mixtral, Qwen 3 with experts, gpt-oss."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from modelzoo.converters.family import Family, require, without
from modelzoo.converters.gemma_families import full_layers, layer_types
from modelzoo.converters.llama_families import (
    LLAMA,
    MISTRAL,
    QWEN3,
    llama_configuration,
    llama_keys,
    qwen_keys,
)
from modelzoo.converters.mxfp4 import unpacked
from modelzoo.converters.weights import Rule, rule

_OURS = "decoder.{i}.feed_forward"


def _rules(dense: Family, theirs: str, gate: str, up: str, down: str) -> tuple[Rule, ...]:
    """Return the rules of a family with experts in the place of feed-forward networks."""
    experts = {gate: "gate", up: "up", down: "down"}
    return (
        *(each for each in dense.rules if ".mlp." not in each.theirs),
        rule(f"{theirs}.gate.weight", f"{_OURS}.router.weight"),
        *(
            rule(f"{theirs}.experts.{{e}}.{name}.weight", f"{_OURS}.{ours}.weight")
            for name, ours in experts.items()
        ),
    )


def _mixtral_keys(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return keys of Mixtral that are spelt otherwise: those of LLaMA, and experts."""
    experts = {"num_experts": config["num_local_experts"], "top_k": config["num_experts_per_tok"]}
    return {**llama_keys(config), "moe": experts}


def _mixtral_configuration(section: Mapping[str, Any]) -> dict[str, Any]:
    return {**llama_configuration(section), **_expert_configuration(section)}


def _expert_configuration(section: Mapping[str, Any]) -> dict[str, Any]:
    moe = section["moe"]
    return {"num_local_experts": moe["num_experts"], "num_experts_per_tok": moe["top_k"]}


MIXTRAL = replace(
    MISTRAL,
    model_type="mixtral",
    architecture="MixtralForCausalLM",
    name="mixtral",
    rules=_rules(LLAMA, "model.layers.{i}.block_sparse_moe", "w1", "w3", "w2"),
    defaults={
        **MISTRAL.defaults,
        "rms_norm_eps": 1e-5,
        "sliding_window": None,
        "num_local_experts": 8,
        "num_experts_per_tok": 2,
    },
    further_ours=_mixtral_keys,
    further_theirs=_mixtral_configuration,
)


def _qwen3_moe_keys(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return keys of Qwen 3 that are spelt otherwise: also experts, of which releases differ."""
    moe = {
        "num_experts": config.get("num_experts", config.get("num_local_experts", 128)),
        "top_k": config["num_experts_per_tok"],
        "expert_weighting_normalization": config["norm_topk_prob"],
    }
    return {**qwen_keys(config), "moe": moe}


def _qwen3_moe_configuration(section: Mapping[str, Any]) -> dict[str, Any]:
    return {
        **llama_configuration(section),
        **_expert_configuration(section),
        "norm_topk_prob": section["moe"]["expert_weighting_normalization"],
    }


QWEN3_MOE = replace(
    QWEN3,
    model_type="qwen3_moe",
    architecture="Qwen3MoeForCausalLM",
    name="qwen3_moe",
    rules=_rules(QWEN3, "model.layers.{i}.mlp", "gate_proj", "up_proj", "down_proj"),
    keys={**without(QWEN3.keys, "filter_size"), "filter_size": "moe_intermediate_size"},
    required={**QWEN3.required, "decoder_sparse_step": 1, "mlp_only_layers": []},
    defaults={
        **without(QWEN3.defaults, "head_dim"),
        "num_key_value_heads": 4,
        "moe_intermediate_size": 768,
        "num_experts_per_tok": 8,
        "norm_topk_prob": False,
        "intermediate_size": None,
    },
    further_ours=_qwen3_moe_keys,
    further_theirs=_qwen3_moe_configuration,
)


def _gpt_oss_keys(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return keys of gpt-oss that are spelt otherwise; ConfigError if packed in another way."""
    packed = config.get("quantization_config") or {"quant_method": "mxfp4"}
    require(packed, "quant_method", "mxfp4")
    keys = _mixtral_keys(config)
    keys["moe"]["router_use_bias"] = True
    return {**keys, "full_attention_layers": full_layers(config)}


def _gpt_oss_configuration(section: Mapping[str, Any]) -> dict[str, Any]:
    return {**_mixtral_configuration(section), "layer_types": layer_types(section)}


_EXPERTS = "model.layers.{i}.mlp.experts"
_GATE_AND_UP = {"weight": "", "bias": "_bias"}

GPT_OSS = replace(
    LLAMA,
    model_type="gpt_oss",
    architecture="GptOssForCausalLM",
    name="gpt_oss",
    rules=(
        *(
            each
            for each in LLAMA.rules
            if ".mlp." not in each.theirs and "_proj" not in each.theirs
        ),
        *(
            rule(
                f"model.layers.{{i}}.self_attn.{theirs}_proj.{{p}}",
                f"decoder.{{i}}.attention.{ours}.{{p}}",
            )
            for theirs, ours in (("q", "query"), ("k", "key"), ("v", "value"), ("o", "output"))
        ),
        rule("model.layers.{i}.self_attn.sinks", "decoder.{i}.attention.sinks"),
        rule("model.layers.{i}.mlp.router.{p}", f"{_OURS}.router.{{p}}"),
        *(
            rule(
                f"{_EXPERTS}.gate_up_proj{end}",
                f"{_OURS}.gate.{p}",
                f"{_OURS}.up.{p}",
                is_transposed=p == "weight",
                interleaves_rows=True,
            )
            for p, end in _GATE_AND_UP.items()
        ),
        rule(f"{_EXPERTS}.down_proj", f"{_OURS}.down.weight", is_transposed=True),
        rule(f"{_EXPERTS}.down_proj_bias", f"{_OURS}.down.bias"),
    ),
    keys=MISTRAL.keys,
    implied={
        **LLAMA.implied,
        "nonlinearity": "clamped_glu",
        "use_ffn_bias": True,
        "use_projection_bias_in_attention": True,
        "use_ffn_bias_in_attention": True,
        "use_sink_token": True,
    },
    required={
        "hidden_act": "silu",
        "attention_bias": True,
        "swiglu_alpha": 1.702,
        "swiglu_limit": 7.0,
    },
    defaults={
        **LLAMA.defaults,
        "max_position_embeddings": 131072,
        "rms_norm_eps": 1e-5,
        "sliding_window": 128,
        "head_dim": 64,
        "num_key_value_heads": 8,
        "num_local_experts": 128,
        "num_experts_per_tok": 4,
        "rope_theta": 150000.0,
    },
    further_ours=_gpt_oss_keys,
    further_theirs=_gpt_oss_configuration,
    unpacked=unpacked,
)
