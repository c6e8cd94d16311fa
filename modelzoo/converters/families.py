"""The families of transformers that have a model here: GPT-2, GPT-J, LLaMA.

Keys and names: config.json and the state dict of transformers 5 (``model_type``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from modelzoo.converters.weights import Rule, Weights, matched, rule, to_ours, to_theirs
from modelzoo.models.registry import model_config
from wsc.core.errors import ConfigError

_GELU = {"gelu": "gelu", "gelu_new": "gelu_new", "gelu_pytorch_tanh": "gelu_new", "relu": "relu"}


@dataclass(frozen=True)
class Family:
    """A ``model_type`` of transformers, and how it is ours."""

    model_type: str
    architecture: str
    """Class with the output layer, for config.json."""
    name: str
    """Our model."""
    rules: tuple[Rule, ...]
    """The first one is the embedding."""
    keys: Mapping[str, str]
    """Our key to theirs."""
    implied: Mapping[str, Any]
    """Our keys that every model of the family has."""
    required: Mapping[str, Any] = field(default_factory=dict)
    """Their keys that must have this value if they are there: nothing else is computed here."""

    def section(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """Return the complete model section for a config.json.

        Raises:
            ConfigError: It is of another family, or asks for what is not computed here.
        """
        _require(config, "model_type", self.model_type)
        for key, value in self.required.items():
            if key in config:
                _require(config, key, value)
        section = {"name": self.name, **self.implied}
        section |= {ours: config[key] for ours, key in self.keys.items() if key in config}
        if section.get("filter_size") is None:
            section["filter_size"] = 4 * section["hidden_size"]
        if self.model_type == "llama":
            section |= _llama_keys(config)
        else:
            section["nonlinearity"] = _nonlinearity(config)
        return model_config(section, "config.json").model_dump(by_alias=True)

    def configuration(self, section: Mapping[str, Any]) -> dict[str, Any]:
        """Return config.json for a model section of ours.

        Raises:
            ConfigError: The model is not of this family.
        """
        complete = model_config(section, "model").model_dump(by_alias=True)
        for key, value in self.implied.items():
            _require(complete, key, value)
        config = {key: complete[ours] for ours, key in self.keys.items()}
        config |= {**self.required, "model_type": self.model_type}
        config["architectures"] = [self.architecture]
        if self.model_type == "llama":
            extra = complete["extra_attention_params"] or {}
            config["num_key_value_heads"] = extra.get("num_kv_groups", complete["num_heads"])
            rope = {"rope_theta": complete["rope_theta"], "rope_type": "default"}
            config["rope_parameters"] = rope
        else:
            config["activation_function"] = complete["nonlinearity"]
        return config

    def matched(self, weights: Weights, section: Mapping[str, Any]) -> Weights:
        """Return the weights that our model has (``weights.matched``)."""
        return matched(self.rules, weights, section)

    def to_ours(self, weights: Weights, section: Mapping[str, Any]) -> Weights:
        """Return the weights of our model (``weights.to_ours``)."""
        return to_ours(self.rules, weights, section)

    def to_theirs(self, weights: Weights, section: Mapping[str, Any]) -> Weights:
        """Return the weights of transformers' model (``weights.to_theirs``)."""
        complete = model_config(section, "model").model_dump(by_alias=True)
        return to_theirs(self.rules, weights, complete)


def _require(values: Mapping[str, Any], key: str, value: Any) -> None:
    if values.get(key) != value:
        raise ConfigError(
            "the configuration must be one that can be converted",
            code="config-not-convertible",
            where=key,
            value=values.get(key),
            rule=f"{key} is {value}",
        )


def _nonlinearity(config: Mapping[str, Any]) -> str:
    found = config.get("activation_function", "gelu_new")
    if found not in _GELU:
        _require(config, "activation_function", "gelu_new")
    return _GELU[found]


def _llama_keys(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return keys of LLaMA that are spelt otherwise: rotation and shared heads."""
    rope = config.get("rope_parameters") or {"rope_theta": config.get("rope_theta", 10000.0)}
    _require({"rope_type": "default", **rope}, "rope_type", "default")
    heads = config["num_attention_heads"]
    if config.get("head_dim") is not None:
        _require(config, "head_dim", config["hidden_size"] // heads)
    shared = config.get("num_key_value_heads") or heads
    keys = {"rope_theta": rope.get("rope_theta", 10000.0)}
    if shared == heads:
        return keys
    groups = {"num_kv_groups": shared}
    return {**keys, "attention_module": "multiquery_attention", "extra_attention_params": groups}


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
            *(f"decoder.{{i}}.attention.{part}.{{p}}" for part in ("query", "key", "value")),
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
)

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
)

FAMILIES: Mapping[str, Family] = {family.model_type: family for family in (GPT2, GPTJ, LLAMA)}
"""Families by ``model_type``, which is the name of ``--model``."""
