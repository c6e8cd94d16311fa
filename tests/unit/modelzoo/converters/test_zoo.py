"""Weights have the names and layouts of the vendor's Model Zoo 2.10, and come back as they were."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from modelzoo.converters.zoo import ZOO
from tests.support.errors import raises
from tests.support.models.multimodal import LLAVA, SIMPLE
from tests.support.models.tiny_models import SIZES, TINY_MODELS, tiny
from waferstream.core.errors import CheckpointError, ConfigError
from waferstream.workload.models import build_model, model_config

T5: dict[str, Any] = {
    "name": "t5", "src_vocab_size": 13, "d_model": 16, "d_kv": 4, "d_ff": 32, "num_heads": 4,
    "encoder_num_hidden_layers": 1, "encoder_nonlinearity": "geglu",
}  # fmt: skip
ROTARY: dict[str, Any] = {
    **tiny("llama"),
    "rotary_dim": 4,
    "position_embedding_type": "rotary",
    "attention_module": "multiquery_attention",
    "extra_attention_params": {"num_kv_groups": 1},
}
ENCODER = {**tiny("bert"), "name": "dpr/encoder"}
SECTIONS: dict[str, dict[str, Any]] = {
    **{name: tiny(name) for name in TINY_MODELS if name != "dit"},
    "llama": ROTARY,
    "falcon": {**tiny("gptj"), "name": "falcon"},
    "t5": T5,
    "dpo": {"name": "dpo", "policy_model": ROTARY, "dpo": {}},
    "llava": LLAVA,
    "multimodal_simple": SIMPLE,
    "vit-convolution": {**tiny("vision_transformer"), "use_conv_patchified_embedding": True},
}
LAYER = "model.transformer_decoder.layers.1"
HEADS = "model.transformer_encoder.layers.0.self_attn"
NAMES = {
    "gpt2": {
        "model.embedding_layer.word_embeddings.weight",
        "model.embedding_layer.position_embeddings.embed.weight",
        f"{LAYER}.norm1.bias",
        f"{LAYER}.norm3.weight",
        f"{LAYER}.self_attn.proj_output_dense_layer.bias",
        "model.transformer_decoder.norm.weight",
        "model.ln_f.weight",
        "model.lm_head.weight",
    },
    "mixtral": {
        f"{LAYER}.ffn.gate.weight",
        f"{LAYER}.ffn.experts.experts.3.0.linear_layer_for_glu.weight",
        f"{LAYER}.ffn.experts.experts.3.1.linear_layer.weight",
        f"{LAYER}.ffn.experts.shared_experts.0.ffn.0.linear_layer.weight",
    },
    "gemma2": {
        f"{LAYER}.norm1_post.weight",
        f"{LAYER}.norm3_post.weight",
        "model.embedding_ln_f.weight",
        "model.embedding_layer.position_embed_helper.slopes",
    },
    "bert": {
        "model.bert_encoder.embedding_layer.segment_embeddings.weight",
        "model.bert_encoder.embed_ln_f.weight",
        "model.bert_encoder.transformer_encoder.layers.0.norm2.weight",
        "model.bert_encoder.pooler.pooler.ffn.0.linear_layer.weight",
        "model.bert_cls_head.classifier.ffn.0.linear_layer.weight",
        "model.bert_mlm_head.mlm_transform.ffn.ffn.0.linear_layer.weight",
        "model.bert_mlm_head.mlm_transform.ln.weight",
        "model.bert_mlm_head.classifier.ffn.0.linear_layer.bias",
    },
    "esm2": {"model.bert_encoder.transformer_encoder.norm.weight"},
    "bert/classifier": {
        "model.bert.pooler.pooler.ffn.0.linear_layer.bias",
        "model.classifier.weight",
    },
    "t5": {
        "model.encoder_embeddings.word_embeddings.weight",
        "model.decoder_embeddings.word_embeddings.weight",
        "model.decoder_embeddings.position_embed_helper.relative_attention_bias.weight",
        "model.encoder.layers.0.norm2.weight",
        "model.decoder.layers.0.multihead_attn.proj_q_dense_layer.weight",
        "model.decoder.layers.0.norm3.weight",
        "model.encoder.norm.weight",
    },
    "vision_transformer": {
        "model.vit_model.embedding_layer.cls_embedding",
        "model.vit_model.embedding_layer.linear_proj.weight",
        "model.vit_model.embedding_layer.position_embeddings.weight",
        "model.vit_model.encoder.transformer_encoder.norm.weight",
        "model.classifier.classifier.ffn.0.linear_layer.weight",
    },
    "dpo": {"ref_model.model.transformer_decoder.norm.weight"},
    "llava": {
        "model.text_model.transformer_decoder.norm.weight",
        "model.text_model.ln_f.weight",
        "model.image_model.embedding_layer.post_embed_ln.weight",
        "model.projector_image_model.ffn.1.linear_layer.weight",
    },
    "multimodal_simple": {
        "model.image_model.image_model_list.0.0.embedding_layer.cls_embedding",
        "model.image_model.projection.ffn.0.linear_layer.bias",
    },
}


def of(case: str) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    """Return a complete section, and random weights of its model."""
    section = model_config(SECTIONS[case]).model_dump(by_alias=True)
    model = build_model(section, seed=0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.3)
    return section, dict(model.state_dict())


@pytest.mark.parametrize("case", SECTIONS)
def test_weights_go_there_and_back(case: str) -> None:
    """Bit for bit, by names of the vendor's class."""
    section, weights = of(case)
    theirs = ZOO.to_theirs(weights, section)
    assert NAMES.get(case, set()) <= theirs.keys()
    assert ZOO.are_of(theirs, section)
    assert not ZOO.are_of(weights, section)
    back = ZOO.to_ours(theirs, section)
    assert back.keys() == weights.keys()
    assert all(torch.equal(back[name], weights[name]) for name in weights)
    assert ZOO.matched({**theirs, "other": torch.ones(1)}, section).keys() <= theirs.keys()


def test_rotated_rows_are_neighbours() -> None:
    """Of queries and keys; ours are half a head apart: rows 0 and 2 of 4, then 1 and 3."""
    section, weights = of("llama")
    weights["decoder.0.attention.query.weight"][:, 0] = torch.arange(16.0)
    weights["decoder.0.attention.key.weight"][:, 0] = torch.arange(8.0)
    theirs = ZOO.to_theirs(weights, section)
    start = "model.transformer_decoder.layers.0.self_attn.proj"
    rows = [0, 2, 1, 3, 4, 5, 6, 7]
    assert theirs[f"{start}_q_dense_layer.weight"][:, 0].tolist() == [
        *rows,
        *(8 + row for row in rows),
    ]
    assert theirs[f"{start}_k_dense_layer.weight"][:, 0].tolist() == rows


@pytest.mark.parametrize(("case", "shape"), [("", (16, 48)), ("-convolution", (16, 3, 4, 4))])
def test_patches_have_channels_last_unless_they_are_convolved(
    case: str, shape: tuple[int, ...]
) -> None:
    """And the class token has the last place."""
    section, weights = of("vit-convolution" if case else "vision_transformer")
    theirs = ZOO.to_theirs(weights, section)
    start = "model.vit_model.embedding_layer"
    patches = theirs[f"{start}.linear_proj.weight"]
    assert patches.shape == shape
    own = weights["patch.weight"].view(16, 3, 4, 4)
    if not case:
        own = own.permute(0, 2, 3, 1).flatten(1)
    assert torch.equal(patches, own)
    places = theirs[f"{start}.position_embeddings.weight"]
    assert torch.equal(places[-1], weights["position.weight"][0])


def test_layers_of_images_that_are_not_read_are_left_out() -> None:
    section, weights = of("llava")
    theirs = ZOO.to_theirs(weights, section)
    last = "model.image_model.encoder.transformer_encoder.layers.2.norm1.weight"
    assert ZOO.to_ours({**theirs, last: torch.ones(16)}, section).keys() == weights.keys()
    with raises(CheckpointError, "unmatched-weights"):
        ZOO.to_ours({**theirs, "model.text_model.other": torch.ones(16)}, section)


def test_model_whose_names_are_not_known_is_refused() -> None:
    section = model_config({"name": "dit", **SIZES, **TINY_MODELS["dit"]}).model_dump(by_alias=True)
    with raises(ConfigError, "config-not-convertible"):
        ZOO.to_theirs({}, section)
