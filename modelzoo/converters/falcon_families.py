"""Families whose queries share one head of keys, or a few: Falcon, StarCoder and SantaCoder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from modelzoo.converters.family import Family, require, rope_of, without
from modelzoo.converters.gpt_families import GPT2, activation_configuration, nonlinearity
from modelzoo.converters.llama_families import rope_configuration, rope_keys
from modelzoo.converters.weights import rule

_QKV = tuple(f"decoder.{{i}}.attention.{part}.{{p}}" for part in ("query", "key", "value"))
_BIASES = ("use_projection_bias_in_attention", "use_ffn_bias_in_attention", "use_ffn_bias")


def shared_heads(number: int) -> dict[str, Any]:
    """Return our keys of a number of heads of keys that queries share."""
    groups = {"num_kv_groups": number}
    return {"attention_module": "multiquery_attention", "extra_attention_params": groups}


def _falcon_keys(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return keys of Falcon that are spelt otherwise: heads, biases, and how many norms it has."""
    is_new, heads = config["new_decoder_architecture"], config["num_attention_heads"]
    shared = config["num_kv_heads"] if is_new else 1 if config["multi_query"] else heads
    keys = {} if shared == heads else shared_heads(shared)
    norms = config.get("num_ln_in_parallel_attn") or 2
    return {
        **keys,
        **rope_keys(rope_of(config)),
        **dict.fromkeys(_BIASES, config["bias"]),
        "use_untied_layer_norm": is_new and norms == 2,
        "filter_size": config.get("ffn_hidden_size") or 4 * config["hidden_size"],
        **nonlinearity("activation", config),
    }


def _falcon_configuration(section: Mapping[str, Any]) -> dict[str, Any]:
    heads = section["num_heads"]
    shared = (section["extra_attention_params"] or {}).get("num_kv_groups", heads)
    for key in _BIASES[1:]:
        require(section, key, section[_BIASES[0]])
    return {
        "new_decoder_architecture": True if section["use_untied_layer_norm"] else shared != 1,
        "num_ln_in_parallel_attn": 2 if section["use_untied_layer_norm"] else 1,
        "multi_query": shared == 1,
        "num_kv_heads": shared,
        "bias": section[_BIASES[0]],
        "ffn_hidden_size": section["filter_size"],
        "activation": section["nonlinearity"],
        "rope_parameters": rope_configuration(section),
    }


FALCON = Family(
    "falcon",
    "FalconForCausalLM",
    "falcon",
    rules=(
        rule("transformer.word_embeddings.weight", "embedding.weight"),
        *(
            rule(
                f"transformer.h.{{i}}.{theirs}.{{p}}",
                "decoder.{i}.attention_norm.{p}",
                only=("use_untied_layer_norm", has_two),
            )
            for theirs, has_two in (("input_layernorm", False), ("ln_attn", True))
        ),
        rule("transformer.h.{i}.ln_mlp.{p}", "decoder.{i}.feed_forward_norm.{p}"),
        rule("transformer.h.{i}.self_attention.query_key_value.{p}", *_QKV, interleaves_heads=True),
        rule("transformer.h.{i}.self_attention.dense.{p}", "decoder.{i}.attention.output.{p}"),
        rule("transformer.h.{i}.mlp.dense_h_to_4h.{p}", "decoder.{i}.feed_forward.up.{p}"),
        rule("transformer.h.{i}.mlp.dense_4h_to_h.{p}", "decoder.{i}.feed_forward.down.{p}"),
        rule("transformer.ln_f.{p}", "norm.{p}"),
        rule("lm_head.weight", "head.weight"),
    ),
    keys={
        "vocab_size": "vocab_size",
        "max_position_embeddings": "max_position_embeddings",
        "hidden_size": "hidden_size",
        "num_hidden_layers": "num_hidden_layers",
        "num_heads": "num_attention_heads",
        "layer_norm_epsilon": "layer_norm_epsilon",
        "initializer_range": "initializer_range",
        "attention_dropout_rate": "attention_dropout",
        "residual_dropout_rate": "hidden_dropout",
        "share_embedding_weights": "tie_word_embeddings",
    },
    implied={
        "position_embedding_type": "rotary",
        "rotary_dim": None,
        "norm_type": "layernorm",
        "use_bias_in_output": False,
        "embedding_dropout_rate": 0.0,
    },
    required={"alibi": False, "parallel_attn": True},
    defaults={
        "num_kv_heads": 71,
        "num_attention_heads": 71,
        "max_position_embeddings": 2048,
        "layer_norm_epsilon": 1e-5,
        "new_decoder_architecture": False,
        "multi_query": True,
        "bias": False,
        "activation": "gelu",
        "tie_word_embeddings": True,
        "hidden_dropout": 0.0,
        "attention_dropout": 0.0,
    },
    further_ours=_falcon_keys,
    further_theirs=_falcon_configuration,
)


def _big_code_keys(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return keys of StarCoder that are spelt otherwise: one head of keys, and the activation."""
    shared = shared_heads(1) if config["multi_query"] else {}
    return {**shared, **nonlinearity("activation_function", config)}


def _big_code_configuration(section: Mapping[str, Any]) -> dict[str, Any]:
    """Return their keys of a section; ConfigError for a number of heads that it cannot state."""
    heads = section["num_heads"]
    shared = (section["extra_attention_params"] or {}).get("num_kv_groups", heads)
    if shared != heads:
        require({"num_kv_groups": shared}, "num_kv_groups", 1)
    return {**activation_configuration(section), "multi_query": shared == 1}


STARCODER = replace(
    GPT2,
    model_type="gpt_bigcode",
    architecture="GPTBigCodeForCausalLM",
    name="starcoder",
    rules=(
        *(
            replace(each, is_transposed=False)
            for each in GPT2.rules
            if ".c_attn." not in each.theirs
        ),
        rule("transformer.h.{i}.attn.c_attn.{p}", *_QKV, interleaves_heads=True),
    ),
    implied=without(GPT2.implied, "attention_module"),
    required={"scale_attn_weights": True, "add_cross_attention": False},
    defaults={
        "n_positions": 1024,
        "multi_query": True,
        "activation_function": "gelu_pytorch_tanh",
        "attention_softmax_in_fp32": True,
        "scale_attention_softmax_in_fp32": True,
        "num_key_value_heads": None,
        "tie_word_embeddings": True,
    },
    further_ours=_big_code_keys,
    further_theirs=_big_code_configuration,
)

SANTACODER = replace(STARCODER, name="santacoder")
