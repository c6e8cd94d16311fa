"""Families that classify images: ViT."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from modelzoo.converters.encoder_families import (
    LAYER_KEYS,
    activation_configuration,
    activation_keys,
)
from modelzoo.converters.family import Family, require
from modelzoo.converters.weights import rule

_ATTENTION = {"query": "q_proj", "key": "k_proj", "value": "v_proj", "output": "o_proj"}


def _image_keys(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return keys of ViT that are spelt otherwise: sizes of squares, and its classes."""
    sizes = {key: [config[key]] * 2 for key in ("image_size", "patch_size")}
    labels = config.get("num_labels") or len(config.get("id2label") or "ab")
    plain = activation_keys(config)
    return {**sizes, "num_classes": labels, "nonlinearity": plain["encoder_nonlinearity"]}


def _image_configuration(section: Mapping[str, Any]) -> dict[str, Any]:
    """Return their keys of a section; ConfigError for what is no square."""
    for key in ("image_size", "patch_size"):
        require({key: len({*section[key]})}, key, 1)
    activation = activation_configuration({"encoder_nonlinearity": section["nonlinearity"]})
    labels = {str(number): f"LABEL_{number}" for number in range(section["num_classes"])}
    return {
        **activation,
        "image_size": section["image_size"][0],
        "patch_size": section["patch_size"][0],
        "id2label": labels,
        "label2id": {label: int(number) for number, label in labels.items()},
    }


VIT = Family(
    "vit",
    "ViTForImageClassification",
    "vision_transformer",
    rules=(
        rule("vit.embeddings.cls_token", "class_token", shape=(1, 1, -1)),
        rule("vit.embeddings.position_embeddings", "position.weight", shape=(1, -1, "hidden_size")),
        rule(
            "vit.embeddings.patch_embeddings.projection.weight",
            "patch.weight",
            shape=(-1, "num_channels", "patch_size"),
        ),
        rule("vit.embeddings.patch_embeddings.projection.bias", "patch.bias"),
        *(
            rule(
                f"vit.layers.{{i}}.attention.{theirs}.{{p}}",
                f"encoder.{{i}}.attention.{ours}.{{p}}",
            )
            for ours, theirs in _ATTENTION.items()
        ),
        rule("vit.layers.{i}.layernorm_before.{p}", "encoder.{i}.attention_norm.{p}"),
        rule("vit.layers.{i}.layernorm_after.{p}", "encoder.{i}.feed_forward_norm.{p}"),
        rule("vit.layers.{i}.mlp.fc1.{p}", "encoder.{i}.feed_forward.up.{p}"),
        rule("vit.layers.{i}.mlp.fc2.{p}", "encoder.{i}.feed_forward.down.{p}"),
        rule("vit.layernorm.{p}", "norm.{p}"),
        rule("classifier.{p}", "classifier.{p}"),
    ),
    keys={
        **LAYER_KEYS,
        "num_channels": "num_channels",
        "use_projection_bias_in_attention": "qkv_bias",
    },
    implied={
        "norm_first": True,
        "use_post_embed_layer_norm": False,
        "use_final_layer_norm": True,
        "use_dinov2_classifier": False,
        "use_bias_in_output": True,
        "use_embed_proj_bias": True,
        "layerscale_value": None,
    },
    defaults={
        "hidden_size": 768,
        "num_hidden_layers": 12,
        "num_attention_heads": 12,
        "intermediate_size": 3072,
        "hidden_act": "gelu",
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
        "initializer_range": 0.02,
        "layer_norm_eps": 1e-12,
        "image_size": 224,
        "patch_size": 16,
        "num_channels": 3,
        "qkv_bias": True,
        "encoder_stride": None,
        "pooler_output_size": None,
        "pooler_act": None,
    },
    further_ours=_image_keys,
    further_theirs=_image_configuration,
    renamed=(
        (r"^vit\.encoder\.layer\.", "vit.layers."),
        (r"\.attention\.attention\.(q|k|v)(uery|ey|alue)\.", r".attention.\1_proj."),
        (r"\.attention\.output\.dense\.", ".attention.o_proj."),
        (r"\.intermediate\.dense\.", ".mlp.fc1."),
        (r"\.output\.dense\.", ".mlp.fc2."),
    ),
    unread=("vit.pooler.",),
)
