"""Families of encoders of tokens: BERT, RoBERTa, ESM-2."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from modelzoo.converters.family import Family, no_keys, require
from modelzoo.converters.weights import Rule, rule

_ATTENTION = tuple(
    rule(
        f"{{body}}.encoder.layer.{{i}}.attention.self.{part}.{{p}}",
        f"encoder.{{i}}.attention.{part}.{{p}}",
    )
    for part in ("query", "key", "value")
)
_LAYER = (
    *_ATTENTION,
    rule("{body}.encoder.layer.{i}.attention.output.dense.{p}", "encoder.{i}.attention.output.{p}"),
    rule("{body}.encoder.layer.{i}.intermediate.dense.{p}", "encoder.{i}.feed_forward.up.{p}"),
    rule("{body}.encoder.layer.{i}.output.dense.{p}", "encoder.{i}.feed_forward.down.{p}"),
)
_POST_NORMS = (
    rule(
        "{body}.encoder.layer.{i}.attention.output.LayerNorm.{p}", "encoder.{i}.attention_norm.{p}"
    ),
    rule("{body}.encoder.layer.{i}.output.LayerNorm.{p}", "encoder.{i}.feed_forward_norm.{p}"),
)
_EMBEDDING = (
    rule("{body}.embeddings.word_embeddings.weight", "embedding.token.weight"),
    rule("{body}.embeddings.position_embeddings.weight", "embedding.position.weight"),
    rule("{body}.embeddings.token_type_embeddings.weight", "embedding.segment.weight"),
    rule("{body}.embeddings.LayerNorm.{p}", "embedding.norm.{p}"),
)


def encoder_rules(body: str, parts: tuple[Rule, ...] = (), start: str = "") -> tuple[Rule, ...]:
    """Return the rules of an encoder of BERT that transformers calls ``body``.

    ``start`` precedes our names, of an encoder that is part of a model.
    """
    return tuple(
        replace(
            each,
            theirs=each.theirs.replace("{body}", body),
            ours=tuple(f"{start}{name}" for name in each.ours),
        )
        for each in (*_EMBEDDING, *_LAYER, *(parts or _POST_NORMS))
    )


LAYER_KEYS = {
    "hidden_size": "hidden_size",
    "num_hidden_layers": "num_hidden_layers",
    "num_heads": "num_attention_heads",
    "filter_size": "intermediate_size",
    "layer_norm_epsilon": "layer_norm_eps",
    "initializer_range": "initializer_range",
    "dropout_rate": "hidden_dropout_prob",
    "embedding_dropout_rate": "hidden_dropout_prob",
    "attention_dropout_rate": "attention_probs_dropout_prob",
}
"""Keys of the layers of an encoder."""

ENCODER_KEYS = {"vocab_size": "vocab_size", **LAYER_KEYS, "pad_token_id": "pad_token_id"}
_KEYS = {
    **ENCODER_KEYS,
    "num_segments": "type_vocab_size",
    "share_embedding_weights": "tie_word_embeddings",
    "max_position_embeddings": "max_position_embeddings",
}
_POST_NORM = {
    "position_embedding_type": "learned",
    "embedding_layer_norm": True,
    "norm_first": False,
    "use_final_layer_norm": False,
    "token_dropout": False,
}
ENCODER_DEFAULTS = {
    "vocab_size": 30522,
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
    "layer_norm_eps": 1e-12,
    "initializer_range": 0.02,
    "hidden_dropout_prob": 0.1,
    "attention_probs_dropout_prob": 0.1,
    "max_position_embeddings": 512,
    "type_vocab_size": 2,
    "pad_token_id": 0,
    "tie_word_embeddings": True,
    "hidden_act": "gelu",
}
READS_ALL = {"is_decoder": False, "add_cross_attention": False}
"""Their keys of a model of which every position reads every other."""

_WITH_NSP = "BertForPreTraining"
_ACTIVATIONS = ("gelu", "relu")


def activation_keys(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return our key of an encoder's activation; ConfigError for others."""
    if config["hidden_act"] not in _ACTIVATIONS:
        require(config, "hidden_act", "gelu")
    return {"encoder_nonlinearity": config["hidden_act"]}


def activation_configuration(section: Mapping[str, Any]) -> dict[str, Any]:
    """Return their key of an encoder's activation."""
    return {"hidden_act": section["encoder_nonlinearity"]}


def _bert_keys(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return keys of BERT that are spelt otherwise: which heads it has, and their activation."""
    return {
        **activation_keys(config),
        "mlm_nonlinearity": config["hidden_act"],
        "disable_nsp": _WITH_NSP not in (config.get("architectures") or [_WITH_NSP]),
    }


def _bert_configuration(section: Mapping[str, Any]) -> dict[str, Any]:
    require(section, "mlm_nonlinearity", section["encoder_nonlinearity"])
    architecture = "BertForMaskedLM" if section["disable_nsp"] else _WITH_NSP
    return {**activation_configuration(section), "architectures": [architecture]}


BERT = Family(
    "bert",
    _WITH_NSP,
    "bert",
    rules=(
        *encoder_rules("bert"),
        rule("bert.pooler.dense.{p}", "nsp.pooler.{p}"),
        rule("cls.seq_relationship.{p}", "nsp.classifier.{p}"),
        rule("cls.predictions.transform.dense.{p}", "mlm.transform.{p}"),
        rule("cls.predictions.transform.LayerNorm.{p}", "mlm.norm.{p}"),
        rule("cls.predictions.decoder.weight", "mlm.head.weight"),
        rule("cls.predictions.bias", "mlm.head.bias"),
    ),
    keys=_KEYS,
    implied={**_POST_NORM, "mask_padding_in_positional_embed": False},
    required={**READS_ALL, "position_embedding_type": "absolute"},
    defaults=ENCODER_DEFAULTS,
    further_ours=_bert_keys,
    further_theirs=_bert_configuration,
    duplicates={"cls.predictions.decoder.bias": "cls.predictions.bias"},
    unread=("bert.pooler.", "cls.seq_relationship."),
)


def _roberta_keys(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return keys of RoBERTa that are spelt otherwise: positions begin behind padding's."""
    positions = config["max_position_embeddings"] - config["pad_token_id"] - 1
    return {**activation_keys(config), "max_position_embeddings": positions}


def _roberta_configuration(section: Mapping[str, Any]) -> dict[str, Any]:
    positions = section["max_position_embeddings"] + section["pad_token_id"] + 1
    return {**activation_configuration(section), "max_position_embeddings": positions}


_LM_HEAD = (
    rule("lm_head.dense.{p}", "mlm.transform.{p}"),
    rule("lm_head.layer_norm.{p}", "mlm.norm.{p}"),
    rule("lm_head.decoder.weight", "mlm.head.weight"),
    rule("lm_head.bias", "mlm.head.bias"),
)

ROBERTA = replace(
    BERT,
    model_type="roberta",
    architecture="RobertaForMaskedLM",
    rules=(*encoder_rules("roberta"), *_LM_HEAD),
    implied={
        **_POST_NORM,
        "mask_padding_in_positional_embed": True,
        "disable_nsp": True,
        "mlm_nonlinearity": "gelu",
    },
    defaults={**ENCODER_DEFAULTS, "vocab_size": 50265, "pad_token_id": 1},
    further_ours=_roberta_keys,
    further_theirs=_roberta_configuration,
    duplicates={"lm_head.decoder.bias": "lm_head.bias"},
    unread=("roberta.pooler.",),
)

_PRE_NORMS = (
    rule("{body}.encoder.layer.{i}.attention.LayerNorm.{p}", "encoder.{i}.attention_norm.{p}"),
    rule("{body}.encoder.layer.{i}.LayerNorm.{p}", "encoder.{i}.feed_forward_norm.{p}"),
    rule("{body}.encoder.emb_layer_norm_after.{p}", "norm.{p}"),
)


def _esm_keys(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return keys of ESM-2 that are spelt otherwise: its mask, which counts where it drops."""
    return {"mask_token_id": config.get("mask_token_id") or 32}


ESM = replace(
    ROBERTA,
    model_type="esm",
    architecture="EsmForMaskedLM",
    name="esm2",
    rules=(*encoder_rules("esm", _PRE_NORMS), *_LM_HEAD),
    keys={
        **ENCODER_KEYS,
        "share_embedding_weights": "tie_word_embeddings",
        "max_position_embeddings": "max_position_embeddings",
        "token_dropout": "token_dropout",
        "mask_token_id": "mask_token_id",
    },
    implied={
        "position_embedding_type": "rotary",
        "num_segments": 0,
        "embedding_layer_norm": False,
        "norm_first": True,
        "use_final_layer_norm": True,
        "disable_nsp": True,
        "mlm_nonlinearity": "gelu",
        "encoder_nonlinearity": "gelu",
    },
    required={
        **READS_ALL,
        "position_embedding_type": "rotary",
        "emb_layer_norm_before": False,
        "is_folding_model": False,
        "rope_theta": 10000.0,
        "hidden_act": "gelu",
    },
    defaults={
        **ENCODER_DEFAULTS,
        "vocab_size": 33,
        "pad_token_id": 1,
        "max_position_embeddings": 1026,
        "position_embedding_type": "absolute",
        "token_dropout": False,
    },
    further_ours=_esm_keys,
    further_theirs=no_keys,
    unread=("esm.contact_head.", "esm.embeddings.position_embeddings."),
)
