"""Families with layer norms: GPT-2, GPT-J, GPT-NeoX, BLOOM, Jais, BTLM."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from modelzoo.converters.family import Family, require, rope_of
from modelzoo.converters.weights import rule

_GELU = {"gelu": "gelu", "gelu_new": "gelu_new", "gelu_pytorch_tanh": "gelu_new", "relu": "relu"}


def nonlinearity(key: str, config: Mapping[str, Any]) -> dict[str, Any]:
    """Return our key of an activation that theirs states under a key; ConfigError for others."""
    found = config.get(key, "gelu_new")
    if found not in _GELU:
        require(config, key, "gelu_new")
    return {"nonlinearity": _GELU[found]}


def activation_configuration(section: Mapping[str, Any]) -> dict[str, Any]:
    """Return their key of the activation of a section."""
    return {"activation_function": section["nonlinearity"]}


_QKV = tuple(f"decoder.{{i}}.attention.{part}.{{p}}" for part in ("query", "key", "value"))

_GPT_KEYS = {
    "vocab_size": "vocab_size",
    "max_position_embeddings": "n_positions",
    "hidden_size": "n_embd",
    "num_hidden_layers": "n_layer",
    "num_heads": "n_head",
    "filter_size": "n_inner",
    "layer_norm_epsilon": "layer_norm_epsilon",
    "initializer_range": "initializer_range",
    "embedding_dropout_rate": "embd_pdrop",
    "attention_dropout_rate": "attn_pdrop",
    "share_embedding_weights": "tie_word_embeddings",
}

GPT2 = Family(
    "gpt2",
    "GPT2LMHeadModel",
    "gpt2",
    rules=(
        rule("transformer.wte.weight", "embedding.weight"),
        rule("transformer.wpe.weight", "position.weight"),
        rule("transformer.h.{i}.ln_1.{p}", "decoder.{i}.attention_norm.{p}"),
        rule(
            "transformer.h.{i}.attn.c_attn.{p}",
            *_QKV,
            is_transposed=True,
        ),
        rule(
            "transformer.h.{i}.attn.c_proj.{p}",
            "decoder.{i}.attention.output.{p}",
            is_transposed=True,
        ),
        rule("transformer.h.{i}.ln_2.{p}", "decoder.{i}.feed_forward_norm.{p}"),
        rule(
            "transformer.h.{i}.mlp.c_fc.{p}", "decoder.{i}.feed_forward.up.{p}", is_transposed=True
        ),
        rule(
            "transformer.h.{i}.mlp.c_proj.{p}",
            "decoder.{i}.feed_forward.down.{p}",
            is_transposed=True,
        ),
        rule("transformer.ln_f.{p}", "norm.{p}"),
        rule("lm_head.weight", "head.weight"),
    ),
    keys={**_GPT_KEYS, "dropout_rate": "resid_pdrop"},
    implied={
        "position_embedding_type": "learned",
        "norm_type": "layernorm",
        "use_projection_bias_in_attention": True,
        "use_ffn_bias_in_attention": True,
        "use_ffn_bias": True,
        "use_bias_in_output": False,
        "attention_module": "aiayn_attention",
    },
    required={"scale_attn_weights": True, "scale_attn_by_inverse_layer_idx": False},
    further_ours=partial(nonlinearity, "activation_function"),
    further_theirs=activation_configuration,
)

GPTJ = Family(
    "gptj",
    "GPTJForCausalLM",
    "gptj",
    rules=(
        rule("transformer.wte.weight", "embedding.weight"),
        rule("transformer.h.{i}.ln_1.{p}", "decoder.{i}.attention_norm.{p}"),
        rule(
            "transformer.h.{i}.attn.q_proj.weight",
            "decoder.{i}.attention.query.weight",
            pairs_neighbours=True,
        ),
        rule(
            "transformer.h.{i}.attn.k_proj.weight",
            "decoder.{i}.attention.key.weight",
            pairs_neighbours=True,
        ),
        rule("transformer.h.{i}.attn.v_proj.weight", "decoder.{i}.attention.value.weight"),
        rule("transformer.h.{i}.attn.out_proj.weight", "decoder.{i}.attention.output.weight"),
        rule("transformer.h.{i}.mlp.fc_in.{p}", "decoder.{i}.feed_forward.up.{p}"),
        rule("transformer.h.{i}.mlp.fc_out.{p}", "decoder.{i}.feed_forward.down.{p}"),
        rule("transformer.ln_f.{p}", "norm.{p}"),
        rule("lm_head.{p}", "head.{p}"),
    ),
    keys={**_GPT_KEYS, "residual_dropout_rate": "resid_pdrop", "rotary_dim": "rotary_dim"},
    implied={
        "position_embedding_type": "rotary",
        "norm_type": "layernorm",
        "use_projection_bias_in_attention": False,
        "use_ffn_bias_in_attention": False,
        "use_ffn_bias": True,
        "use_bias_in_output": True,
        "use_untied_layer_norm": False,
        "attention_module": "aiayn_attention",
    },
    required={"scale_attn_weights": True},
    defaults={"n_positions": 2048, "rotary_dim": 64, "tie_word_embeddings": False},
    further_ours=partial(nonlinearity, "activation_function"),
    further_theirs=activation_configuration,
)


def _neox_keys(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return keys of GPT-NeoX that are spelt otherwise: the part of a head that is rotated."""
    rope = rope_of(config)
    require(rope, "rope_type", "default")
    part = rope.get("partial_rotary_factor", config.get("rotary_pct", 0.25))
    head = config["hidden_size"] // config["num_attention_heads"]
    keys = {"rotary_dim": int(head * part), "rope_theta": rope["rope_theta"]}
    return {**keys, **nonlinearity("hidden_act", config)}


def _neox_configuration(section: Mapping[str, Any]) -> dict[str, Any]:
    head = section["hidden_size"] // section["num_heads"]
    part = (section["rotary_dim"] or head) / head
    rope = {"rope_type": "default", "rope_theta": section["rope_theta"]}
    rope["partial_rotary_factor"] = part
    return {"hidden_act": section["nonlinearity"], "rope_parameters": rope}


GPT_NEOX = Family(
    "gpt_neox",
    "GPTNeoXForCausalLM",
    "gpt-neox",
    rules=(
        rule("gpt_neox.embed_in.weight", "embedding.weight"),
        rule("gpt_neox.layers.{i}.input_layernorm.{p}", "decoder.{i}.attention_norm.{p}"),
        rule("gpt_neox.layers.{i}.attention.query_key_value.{p}", *_QKV, interleaves_heads=True),
        rule("gpt_neox.layers.{i}.attention.dense.{p}", "decoder.{i}.attention.output.{p}"),
        rule(
            "gpt_neox.layers.{i}.post_attention_layernorm.{p}", "decoder.{i}.feed_forward_norm.{p}"
        ),
        rule("gpt_neox.layers.{i}.mlp.dense_h_to_4h.{p}", "decoder.{i}.feed_forward.up.{p}"),
        rule("gpt_neox.layers.{i}.mlp.dense_4h_to_h.{p}", "decoder.{i}.feed_forward.down.{p}"),
        rule("gpt_neox.final_layer_norm.{p}", "norm.{p}"),
        rule("embed_out.weight", "head.weight"),
    ),
    keys={
        "vocab_size": "vocab_size",
        "max_position_embeddings": "max_position_embeddings",
        "hidden_size": "hidden_size",
        "num_hidden_layers": "num_hidden_layers",
        "num_heads": "num_attention_heads",
        "filter_size": "intermediate_size",
        "layer_norm_epsilon": "layer_norm_eps",
        "initializer_range": "initializer_range",
        "attention_dropout_rate": "attention_dropout",
        "residual_dropout_rate": "hidden_dropout",
    },
    implied={
        "position_embedding_type": "rotary",
        "norm_type": "layernorm",
        "use_projection_bias_in_attention": True,
        "use_ffn_bias_in_attention": True,
        "use_ffn_bias": True,
        "use_bias_in_output": False,
        "use_untied_layer_norm": True,
        "share_embedding_weights": False,
        "attention_module": "aiayn_attention",
    },
    required={"use_parallel_residual": True, "tie_word_embeddings": False, "attention_bias": True},
    defaults={"max_position_embeddings": 2048, "tie_word_embeddings": False},
    further_ours=_neox_keys,
    further_theirs=_neox_configuration,
)

BLOOM = Family(
    "bloom",
    "BloomForCausalLM",
    "bloom",
    rules=(
        rule("transformer.word_embeddings.weight", "embedding.weight"),
        rule("transformer.word_embeddings_layernorm.{p}", "embedding_norm.{p}"),
        rule("transformer.h.{i}.input_layernorm.{p}", "decoder.{i}.attention_norm.{p}"),
        rule("transformer.h.{i}.self_attention.query_key_value.{p}", *_QKV, interleaves_heads=True),
        rule("transformer.h.{i}.self_attention.dense.{p}", "decoder.{i}.attention.output.{p}"),
        rule("transformer.h.{i}.post_attention_layernorm.{p}", "decoder.{i}.feed_forward_norm.{p}"),
        rule("transformer.h.{i}.mlp.dense_h_to_4h.{p}", "decoder.{i}.feed_forward.up.{p}"),
        rule("transformer.h.{i}.mlp.dense_4h_to_h.{p}", "decoder.{i}.feed_forward.down.{p}"),
        rule("transformer.ln_f.{p}", "norm.{p}"),
        rule("lm_head.weight", "head.weight"),
    ),
    keys={
        "vocab_size": "vocab_size",
        "max_position_embeddings": "seq_length",
        "hidden_size": "hidden_size",
        "num_hidden_layers": "n_layer",
        "num_heads": "n_head",
        "layer_norm_epsilon": "layer_norm_epsilon",
        "initializer_range": "initializer_range",
        "attention_dropout_rate": "attention_dropout",
        "dropout_rate": "hidden_dropout",
        "share_embedding_weights": "tie_word_embeddings",
    },
    implied={
        "position_embedding_type": "alibi",
        "embedding_layer_norm": True,
        "norm_type": "layernorm",
        "nonlinearity": "gelu_new",
        "use_projection_bias_in_attention": True,
        "use_ffn_bias_in_attention": True,
        "use_ffn_bias": True,
        "use_bias_in_output": False,
        "embedding_dropout_rate": 0.0,
        "attention_module": "aiayn_attention",
    },
    required={"apply_residual_connection_post_layernorm": False, "pretraining_tp": 1},
)


def _alibi_keys(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return keys of Jais that are spelt otherwise: its scales, as muP of release 2.2 states them.

    Raises:
        ConfigError: Distances are scaled as a sequence grows.
    """
    scaling = config.get("alibi_scaling") or {}
    require(scaling, "train_seq_len", None)
    require({"type": scaling.get("type", "linear")}, "type", "linear")
    return {
        "output_logits_scale": config["mup_output_alpha"] * config["mup_width_scale"],
        "scale_qk_dot_by_d": config["mup_scale_qk_dot_by_d"],
        "embeddings_scale": config["mup_embeddings_scale"],
        "pos_scaling_factor": float(scaling.get("factor", 1.0)),
    }


def _alibi_configuration(section: Mapping[str, Any]) -> dict[str, Any]:
    """Return their keys of a section; all of the scale of scores is that of the width."""
    factor = section["pos_scaling_factor"]
    return {
        "mup_output_alpha": 1.0,
        "mup_width_scale": section["output_logits_scale"] or 1.0,
        "mup_scale_qk_dot_by_d": bool(section["scale_qk_dot_by_d"]),
        "mup_embeddings_scale": section["embeddings_scale"],
        "alibi_scaling": None if factor == 1.0 else {"type": "linear", "factor": factor},
    }


JAIS = replace(
    GPT2,
    model_type="jais",
    architecture="JAISLMHeadModel",
    name="jais",
    rules=(
        *(each for each in GPT2.rules if ".wpe." not in each.theirs),
        rule(
            "transformer.h.{i}.mlp.c_fc2.{p}",
            "decoder.{i}.feed_forward.gate.{p}",
            is_transposed=True,
        ),
    ),
    implied={**GPT2.implied, "position_embedding_type": "alibi", "nonlinearity": "swiglu"},
    required={
        **GPT2.required,
        "activation_function": "swiglu",
        "position_embedding_type": "alibi",
        "add_cross_attention": False,
    },
    defaults={
        "n_positions": 1024,
        "tie_word_embeddings": True,
        "activation_function": "gelu_new",
        "position_embedding_type": "learned",
        "mup_output_alpha": 1.0,
        "mup_width_scale": 1.0,
        "mup_embeddings_scale": 1.0,
        "mup_scale_qk_dot_by_d": False,
        "alibi_scaling": None,
    },
    further_ours=_alibi_keys,
    further_theirs=_alibi_configuration,
    unread=("transformer.relative_pe.",),
)
"""Its code is not in transformers but beside its weights, as that of BTLM, which is alike."""

BTLM = replace(JAIS, model_type="btlm", architecture="BTLMLMHeadModel", name="btlm")
