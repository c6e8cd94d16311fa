"""Language models with images have the loss of transformers' LLaVA of the same weights."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import transformers
from torch import nn

from modelzoo.models.multimodal.model import LlavaModel, MultimodalSimpleModel
from tests.support.errors import raises
from tests.support.models.multimodal import (
    IMAGE_MODEL,
    LENGTH,
    LLAVA,
    PATCHES,
    PROJECTOR,
    SIMPLE,
    TEXT_MODEL,
)
from tests.support.nightly import nightly
from waferstream.compiler.compile import CompileRequest, compile_step
from waferstream.core.errors import ConfigError, DataError
from waferstream.numerics.precision import StreamPrecision
from waferstream.workload.model_config import ModelConfig
from waferstream.workload.models import (
    build_model,
    model_config,
    parameter_shapes,
    training_example,
)

_IMAGE_TOKEN = 39  # which the batch has at no other place
_LLAMA = (
    ("text_model.decoder.", "model.language_model.layers."),
    ("text_model.embedding.", "model.language_model.embed_tokens."),
    ("text_model.norm.", "model.language_model.norm."),
    ("text_model.head.", "lm_head."),
    ("projector_image_model.layers.0.", "model.multi_modal_projector.linear_1."),
    ("projector_image_model.layers.1.", "model.multi_modal_projector.linear_2."),
    ("image_model.encoder.", "{vision}.encoder.layers."),
    ("image_model.class_token", "{vision}.embeddings.class_embedding"),
    ("image_model.position.", "{vision}.embeddings.position_embedding."),
    ("image_model.patch.", "{vision}.embeddings.patch_embedding."),
    ("image_model.embedding_norm.", "{vision}.pre_layrnorm."),
)
_TEXT_LAYER = (
    ("attention_norm", "input_layernorm"),
    ("feed_forward_norm", "post_attention_layernorm"),
    *((f"attention.{part}", f"self_attn.{part[0]}_proj") for part in ("query", "key", "value")),
    ("attention.output", "self_attn.o_proj"),
    *((f"feed_forward.{part}", f"mlp.{part}_proj") for part in ("up", "gate", "down")),
)
_IMAGE_LAYER = (
    ("attention_norm", "layer_norm1"),
    ("feed_forward_norm", "layer_norm2"),
    *((f"attention.{part}", f"self_attn.{part[0]}_proj") for part in ("query", "key", "value")),
    ("attention.output", "self_attn.out_proj"),
    ("feed_forward.up", "mlp.fc1"),
    ("feed_forward.down", "mlp.fc2"),
)


def build(section: dict[str, Any], **changes: object) -> nn.Module:
    return build_model(section | changes, seed=0)


@pytest.mark.parametrize("section", [LLAVA, SIMPLE], ids=["llava", "multimodal_simple"])
def test_section_as_read_is_of_the_same_model(section: dict[str, Any]) -> None:
    """It has no layer of the encoder that nothing reads: two of three are left."""
    read = dict(model_config(section).as_read(section))
    assert "'num_hidden_layers': 3" in str(section)
    assert "'num_hidden_layers': 3" not in str(read)
    assert parameter_shapes(read) == parameter_shapes(section)


def batch_of(config: ModelConfig, size: int = 3) -> dict[str, torch.Tensor]:
    """Return random images and tokens, with labels that count behind the image."""
    generator = torch.Generator().manual_seed(0)
    found = {
        f.name: torch.randn(size, *f.shape, generator=generator)
        if f.below is None
        else torch.randint(f.below, (size, *f.shape), generator=generator)
        for f in config.features()
    }
    tokens = torch.randint(_IMAGE_TOKEN, (size, LENGTH + 1), generator=generator)
    found["text_input_ids"], found["labels"] = tokens[:, :-1], tokens[:, 1:]
    found["loss_mask"] = (torch.arange(LENGTH) > PATCHES).long().repeat(size, 1)
    found["key_padding_mask"] = torch.zeros_like(found["loss_mask"])
    found["key_padding_mask"][0, -1], found["loss_mask"][0, -1] = 1, 0
    if "image_data_loc" in found:
        found["image_data_loc"] = torch.arange(1, 1 + PATCHES).repeat(size, 1, 1)
    return found


def their_model() -> Any:
    """Return transformers' LLaVA with the sizes of ``LLAVA``."""
    vision = transformers.CLIPVisionConfig(
        hidden_size=16, num_hidden_layers=3, num_attention_heads=2, intermediate_size=32,
        image_size=8, patch_size=4, layer_norm_eps=1e-5, hidden_act="quick_gelu",
    )  # fmt: skip
    text = transformers.LlamaConfig(
        vocab_size=40, hidden_size=24, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=40, rms_norm_eps=1e-5, max_position_embeddings=8,
    )  # fmt: skip
    config = transformers.LlavaConfig(
        vision_config=vision,
        text_config=text,
        image_token_index=_IMAGE_TOKEN,
        vision_feature_layer=-2,
        projector_hidden_act="gelu",
    )
    torch.manual_seed(0)
    return transformers.LlavaForConditionalGeneration(config).eval()


def copy_weights(model: nn.Module, theirs: Any) -> None:
    """Give a model the random weights of transformers'."""
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.normal_(std=0.3)
    names = dict(theirs.named_parameters())
    vision = next(name for name in names if name.endswith("class_embedding"))
    for ours, parameter in model.named_parameters():
        name = ours
        for some, other in _TEXT_LAYER if ours.startswith("text_model.decoder") else _IMAGE_LAYER:
            name = name.replace(some, other) if ".decoder." in ours or ".encoder." in ours else name
        for some, other in _LLAMA:
            name = name.replace(
                some, other.format(vision=vision.removesuffix(".embeddings.class_embedding"))
            )
        parameter.data.copy_(names[name].data.reshape(parameter.shape))


def test_loss_equals_that_of_transformers() -> None:
    """Of random weights, with padding; theirs reads a token that stands for each patch."""
    theirs, model = their_model(), build(LLAVA)
    copy_weights(model, theirs)
    batch = batch_of(model_config(LLAVA))
    whole = torch.cat([batch["text_input_ids"][:, :1], batch["labels"]], dim=1)
    whole[:, 1 : 1 + PATCHES] = _IMAGE_TOKEN
    counted = torch.cat([torch.zeros_like(whole[:, :1]), batch["loss_mask"]], dim=1)
    padding = torch.cat([batch["key_padding_mask"], torch.zeros_like(whole[:, :1])], dim=1)
    expected = theirs(
        input_ids=whole,
        pixel_values=batch["image_data"],
        attention_mask=1 - padding,
        labels=torch.where(counted == 1, whole, -100),
    )
    torch.testing.assert_close(model(**batch), expected.loss)


def test_places_of_an_image_give_the_loss_of_llava() -> None:
    """The same weights and places, stated by the model or by the data."""
    llava, simple = build(LLAVA), build(SIMPLE)
    theirs = dict(llava.named_parameters())
    with torch.no_grad():
        for name, parameter in simple.named_parameters():
            other = name.replace(".image_model_list.encoder_0.", ".")
            other = other.replace("image_model.projection.", "projector_image_model.")
            parameter.copy_(theirs[other])
    batch = batch_of(model_config(LLAVA))
    expected = llava(**batch)
    batch["image_data"] = batch["image_data"][:, None]
    places = torch.arange(1, 1 + PATCHES).repeat(3, 1, 1)
    torch.testing.assert_close(simple(**batch, image_data_loc=places), expected)
    nowhere = simple(**batch, image_data_loc=torch.full_like(places, LENGTH))
    text_alone = simple(
        **batch | {"image_data": batch["image_data"] * 2}, image_data_loc=places * 0 + LENGTH
    )
    assert torch.equal(nowhere, text_alone)
    assert not torch.allclose(nowhere, expected)


def test_several_encoders_give_their_vectors_one_after_the_other() -> None:
    """Each with a projector of its own, and one with the norm behind its last layer."""
    other = IMAGE_MODEL | {"hidden_size": 24, "patch_size": [8, 8]}
    entries = [
        {"image_encoder": IMAGE_MODEL | {"image_layer_idx": 0}, "projection_layer": PROJECTOR},
        {"image_encoder": other},
    ]
    section = SIMPLE | {"image_model_list": {"image_models": entries}}
    model, config = build(section), model_config(section)
    assert isinstance(model, MultimodalSimpleModel)
    vectors = model.image_model(torch.randn(2, 3, 8, 8))
    assert vectors.shape == (2, PATCHES + 1, 24)
    torch.testing.assert_close(vectors[:, -1].mean(-1), torch.zeros(2), atol=1e-6, rtol=0)
    shapes = {f.name: f.shape for f in config.for_data({"max_num_img": 2}).features()}
    assert shapes["image_data_loc"] == (2, PATCHES + 1)
    assert shapes["image_data"] == (2, 3, 8, 8)


@pytest.mark.parametrize(
    ("section", "patterns", "trained"),
    [
        (LLAVA, ["^image_model", "^text_model"], {"projector_image_model"}),
        (LLAVA, ["^image_model"], {"projector_image_model", "text_model"}),
        (SIMPLE, ["^image_model.image_model_list", "^text_model"], {"image_model.projection"}),
    ],
)
def test_frozen_parts_are_those_of_stock_files(
    section: dict[str, Any], patterns: list[str], trained: set[str]
) -> None:
    model = build(section, freeze=patterns)
    names = [name for name, each in model.named_parameters() if each.requires_grad]
    assert {next(part for part in trained if n.startswith(part)) for n in names} == trained
    assert len(names) == sum(
        name.startswith(tuple(trained)) for name, _ in model.named_parameters()
    )


@pytest.mark.parametrize(
    ("section", "freeze"),
    [
        *nightly((LLAVA, None)),
        (SIMPLE, ["^image_model", "^text_model.transformer_decoder"]),
    ],
    ids=["llava", "simple, frozen in part"],
)
def test_training_step_compiles(section: dict[str, Any], freeze: list[str] | None) -> None:
    """Every op has a kernel, and every weight that is not frozen a gradient."""
    example = training_example(section | {"freeze": freeze}, micro_batch_size=3)
    request = CompileRequest(
        StreamPrecision(), micro_batch_size=3, num_micro_batches=2, target="test"
    )
    compiled, _ = compile_step(example.step, example.model, example.inputs, request)
    expected = {name for name, each in example.model.named_parameters() if each.requires_grad}
    assert set(compiled.program.trained) == expected


def test_layers_behind_the_one_that_is_read_are_left_out() -> None:
    counts = {}
    for layer in (-1, -2, 0):
        model = build(LLAVA, image_feature_select_layer_idx=layer)
        assert isinstance(model, LlavaModel)
        counts[layer] = len(model.image_model.encoder)
        assert model.image_model.norm is None
    assert counts == {-1: 3, -2: 2, 0: 1}


def test_class_token_is_read_where_stated() -> None:
    """``cls_patch`` takes a place more."""
    model = build(LLAVA, image_feature_select_mode="cls_patch")
    other = build(LLAVA)
    batch = batch_of(model_config(LLAVA))
    changed = batch | {"text_input_ids": batch["text_input_ids"].clone()}
    changed["text_input_ids"][:, 1 + PATCHES] = 0
    assert torch.equal(model(**batch), model(**changed))
    assert not torch.equal(other(**batch), other(**changed))


def test_sequences_without_room_are_refused() -> None:
    """Of LLaVA a short one, of the other fewer places than vectors."""
    short = {
        name: tensor[:, :4] if tensor.ndim == 2 else tensor
        for name, tensor in batch_of(model_config(LLAVA)).items()
    }
    with raises(DataError, "sequence-without-image"):
        build(LLAVA)(**short)
    batch = batch_of(model_config(SIMPLE))
    batch["image_data_loc"] = batch["image_data_loc"][..., 1:]
    with raises(DataError, "image-places-mismatch"):
        build(SIMPLE)(**batch)


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"projector": None}, "projector"),
        ({"projector": {"image_model": PROJECTOR | {"input_unit": 8}}}, "projector"),
        ({"projector": {"image_model": PROJECTOR | {"layers_activation": ["gelu"]}}}, "layers_act"),
        ({"projector": {"text_model": PROJECTOR}}, "text_model"),
        ({"image_feature_select_layer_idx": 3}, "image_feature_select_layer_idx"),
        ({"image_start_idx": 5}, "image_start_idx"),
        ({"text_model": TEXT_MODEL | {"loss_scaling": "num_tokens"}}, "loss_scaling"),
        ({"text_model": TEXT_MODEL | {"name": "gpt2"}}, "name"),
        ({"text_model": TEXT_MODEL | {"mup_base_hidden_size": 8}}, "mup_base_hidden_size"),
        ({"freeze": ["("]}, "freeze"),
        ({"loss_weight": 0.5}, "loss_weight"),
    ],
)
def test_wrong_sections_are_refused(change: dict[str, Any], key: str) -> None:
    """The error names the key."""
    with pytest.raises(ConfigError) as caught:
        build(LLAVA, **change)
    assert key in caught.value.what


def test_pattern_that_matches_nothing_is_refused() -> None:
    with raises(ConfigError, "freeze-without-match"):
        build(LLAVA, freeze=["^audio_model"])
