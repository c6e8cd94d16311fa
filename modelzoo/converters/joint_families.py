"""Families of several parts: two encoders of texts (DPR), images before a text (LLaVA)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from modelzoo.converters.encoder_families import (
    ENCODER_DEFAULTS,
    ENCODER_KEYS,
    READS_ALL,
    activation_configuration,
    activation_keys,
    encoder_rules,
)
from modelzoo.converters.family import Family, require, without
from modelzoo.converters.llama_families import LLAMA
from modelzoo.converters.weights import Rule, rule
from modelzoo.models.multimodal.config import TextModelConfig

_TEXT_KEYS = {
    **ENCODER_KEYS,
    "max_position_embeddings": "max_position_embeddings",
    "num_segments": "type_vocab_size",
}
_DPR_PARTS = ("question_encoder", "ctx_encoder")


def _dpr_keys(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the sections of both encoders, which are alike."""
    encoder = {ours: config[theirs] for ours, theirs in _TEXT_KEYS.items()}
    encoder = {"name": "dpr/encoder", **encoder, **activation_keys(config)}
    return {"q_encoder": encoder, "ctx_encoder": encoder}


def _dpr_configuration(section: Mapping[str, Any]) -> dict[str, Any]:
    """Return their keys of both encoders; ConfigError if they differ."""
    encoder = section["q_encoder"] or section["encoder"]
    if section["ctx_encoder"] is not None:
        require(section, "ctx_encoder", encoder)
    keys = {theirs: encoder[ours] for ours, theirs in _TEXT_KEYS.items()}
    return {**keys, **activation_configuration(encoder)}


DPR = Family(
    "dpr",
    "DPRQuestionEncoder",
    "dpr",
    rules=tuple(
        each
        for part in _DPR_PARTS
        for each in encoder_rules(f"{part}.bert_model", start=f"{part}.")
    ),
    keys={},
    implied={"pooler_type": "cls"},
    required={**READS_ALL, "projection_dim": 0, "position_embedding_type": "absolute"},
    defaults=ENCODER_DEFAULTS,
    further_ours=_dpr_keys,
    further_theirs=_dpr_configuration,
    unread=tuple(f"{part}.bert_model.pooler." for part in _DPR_PARTS),
)
"""Weights of both encoders, whose files transformers keeps apart, by the names of both."""

_IMAGE_KEYS = {
    "hidden_size": "hidden_size",
    "num_hidden_layers": "num_hidden_layers",
    "num_heads": "num_attention_heads",
    "filter_size": "intermediate_size",
    "layer_norm_epsilon": "layer_norm_eps",
    "attention_dropout_rate": "attention_dropout",
    "initializer_range": "initializer_range",
    "num_channels": "num_channels",
    "nonlinearity": "hidden_act",
}
_CLIP_DEFAULTS = {
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
    "layer_norm_eps": 1e-5,
    "attention_dropout": 0.0,
    "initializer_range": 0.02,
    "num_channels": 3,
    "hidden_act": "quick_gelu",
    "image_size": 224,
    "patch_size": 32,
}
_LLAMA_DEFAULTS = {
    "vocab_size": 32000,
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "intermediate_size": 11008,
    "attention_dropout": 0.0,
    "initializer_range": 0.02,
    "model_type": "llama",
}


def _image_section(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return our section of CLIP's encoder of images."""
    require({"model_type": "clip_vision_model", **config}, "model_type", "clip_vision_model")
    config = {**_CLIP_DEFAULTS, **config}
    return {
        "name": "ViTModel",
        **{ours: config[theirs] for ours, theirs in _IMAGE_KEYS.items()},
        **{key: [config[key]] * 2 for key in ("image_size", "patch_size")},
        "use_post_embed_layer_norm": True,
        "use_embed_proj_bias": False,
        "use_conv_patchified_embedding": True,
        "dropout_rate": 0.0,
    }


def _text_section(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return our section of the language model, a LLaMA."""
    section = LLAMA.section({**_LLAMA_DEFAULTS, **config})
    known = TextModelConfig.model_fields
    return {**{key: value for key, value in section.items() if key in known}, "name": "LlamaModel"}


def _projector(config: Mapping[str, Any], image: Mapping[str, Any], text: int) -> dict[str, Any]:
    """Return our section of the layers between the two; ``text`` is the size after them."""
    return {
        "name": "FeedForwardNetwork",
        "input_unit": image["hidden_size"],
        "layers_units": [text] * 2,
        "layers_activation": [config["projector_hidden_act"], None],
        "use_bias": config["multimodal_projector_bias"],
    }


_MODES = {"default": "patch", "full": "cls_patch"}
"""Ours by ``vision_feature_select_strategy``."""


def _llava_keys(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the sections of LLaVA's parts; its layers of images count from the input."""
    image, text = _image_section(config["vision_config"]), _text_section(config["text_config"])
    layer = config["vision_feature_layer"]
    return {
        "image_model": image,
        "text_model": text,
        "projector": {"image_model": _projector(config, image, text["hidden_size"])},
        "image_feature_select_layer_idx": layer - 1 if layer > 0 else layer,
        "image_feature_select_mode": _MODES[config["vision_feature_select_strategy"]],
    }


def _simple_keys(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the same parts for images at any places."""
    found = _llava_keys(config)
    layer = found["image_feature_select_layer_idx"]
    encoder = {**found["image_model"], "image_layer_idx": layer}
    return {
        "text_model": found["text_model"],
        "image_model_list": {
            "image_feature_select_mode": found["image_feature_select_mode"],
            "image_models": [{"image_encoder": encoder}],
            "global_image_projection": found["projector"]["image_model"],
        },
    }


def _llava_configuration(section: Mapping[str, Any]) -> dict[str, Any]:
    """Return their keys of LLaVA's parts."""
    layer = section["image_feature_select_layer_idx"]
    projector = (section["projector"] or {}).get("image_model")
    return _joint(section, section["image_model"], projector, layer, section)


def _simple_configuration(section: Mapping[str, Any]) -> dict[str, Any]:
    """Return their keys of the same parts; ConfigError for several encoders."""
    found = section["image_model_list"]
    require({"image_models": len(found["image_models"])}, "image_models", 1)
    entry = found["image_models"][0]
    require(entry, "projection_layer", None)
    encoder = entry["image_encoder"]
    layer = encoder["image_layer_idx"]
    return _joint(section, encoder, found["global_image_projection"], layer, found)


def _joint(
    section: Mapping[str, Any],
    image: Mapping[str, Any],
    projector: Mapping[str, Any] | None,
    layer: int | None,
    modes: Mapping[str, Any],
) -> dict[str, Any]:
    """Return their keys of an encoder of images, a projector and a text model of ours."""
    require({"projector": projector is None}, "projector", False)
    require({"layer": layer is None}, "layer", False)
    assert projector is not None, "checked"
    assert layer is not None, "checked"
    sizes = {key: image[key][0] for key in ("image_size", "patch_size")}
    vision = {theirs: image[ours] for ours, theirs in _IMAGE_KEYS.items()}
    text = LLAMA.configuration(
        {**without(section["text_model"], "extra_ffn_params", "embd_pdrop"), "name": "llama",
         "embedding_dropout_rate": section["text_model"]["embd_pdrop"]}
    )  # fmt: skip
    strategies = {ours: theirs for theirs, ours in _MODES.items()}
    return {
        "vision_config": {**vision, **sizes, "model_type": "clip_vision_model"},
        "text_config": text,
        "projector_hidden_act": projector["layers_activation"][0],
        "multimodal_projector_bias": projector["use_bias"],
        "vision_feature_layer": layer + 1 if layer >= 0 else layer,
        "vision_feature_select_strategy": strategies[modes["image_feature_select_mode"]],
    }


_VISION = "vision_tower.vision_model"


def _image_rules(ours: str, part: tuple[str | int, ...]) -> tuple[Rule, ...]:
    """Return the rules of CLIP's encoder of images, which ours has under a name."""
    layer = f"{_VISION}.encoder.layers.{{i}}"
    names = {"query": "q_proj", "key": "k_proj", "value": "v_proj", "output": "out_proj"}
    return (
        rule(f"{_VISION}.embeddings.class_embedding", f"{ours}.class_token"),
        rule(f"{_VISION}.embeddings.position_embedding.weight", f"{ours}.position.weight"),
        rule(
            f"{_VISION}.embeddings.patch_embedding.weight",
            f"{ours}.patch.weight",
            shape=(-1, "num_channels", "patch_size"),
            part=part,
        ),
        rule(f"{_VISION}.pre_layrnorm.{{p}}", f"{ours}.embedding_norm.{{p}}"),
        *(
            rule(f"{layer}.self_attn.{theirs}.{{p}}", f"{ours}.encoder.{{i}}.attention.{own}.{{p}}")
            for own, theirs in names.items()
        ),
        rule(f"{layer}.layer_norm1.{{p}}", f"{ours}.encoder.{{i}}.attention_norm.{{p}}"),
        rule(f"{layer}.layer_norm2.{{p}}", f"{ours}.encoder.{{i}}.feed_forward_norm.{{p}}"),
        rule(f"{layer}.mlp.fc1.{{p}}", f"{ours}.encoder.{{i}}.feed_forward.up.{{p}}"),
        rule(f"{layer}.mlp.fc2.{{p}}", f"{ours}.encoder.{{i}}.feed_forward.down.{{p}}"),
    )


_TEXT_RULES = tuple(
    replace(
        each,
        theirs=f"language_model.{each.theirs}",
        ours=tuple(f"text_model.{name}" for name in each.ours),
    )
    for each in LLAMA.rules
)


def _projector_rules(ours: str) -> tuple[Rule, ...]:
    return tuple(
        rule(f"multi_modal_projector.linear_{i + 1}.{{p}}", f"{ours}.layers.{i}.{{p}}")
        for i in range(2)
    )


LLAVA = Family(
    "llava",
    "LlavaForConditionalGeneration",
    "llava",
    rules=(
        *_TEXT_RULES,
        *_projector_rules("projector_image_model"),
        *_image_rules("image_model", ("image_model",)),
    ),
    keys={},
    implied={},
    required={"tie_word_embeddings": False},
    defaults={
        "vision_feature_layer": -2,
        "vision_feature_select_strategy": "default",
        "projector_hidden_act": "gelu",
        "multimodal_projector_bias": True,
        "image_token_index": None,
        "image_seq_length": None,
        "ignore_index": None,
        "vocab_size": None,
    },
    further_ours=_llava_keys,
    further_theirs=_llava_configuration,
    renamed=(
        (r"^model\.language_model\.", "language_model.model."),
        (r"^lm_head\.", "language_model.lm_head."),
        (r"^model\.(vision_tower|multi_modal_projector)\.", r"\1."),
        (r"^vision_tower\.(?!vision_model\.)", f"{_VISION}."),
    ),
    unread=(_VISION,),
)

_LISTED = "image_model.image_model_list.encoder_0"

MULTIMODAL_SIMPLE = replace(
    LLAVA,
    name="multimodal_simple",
    rules=(
        *_TEXT_RULES,
        *_projector_rules("image_model.projection"),
        *_image_rules(_LISTED, ("image_model_list", "image_models", 0, "image_encoder")),
    ),
    further_ours=_simple_keys,
    further_theirs=_simple_configuration,
)
