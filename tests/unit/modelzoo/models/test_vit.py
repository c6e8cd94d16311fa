"""The vision transformer has the loss of transformers' model of the same weights."""

from __future__ import annotations

import pytest
import torch
import transformers

from modelzoo.models.blocks.attention import SoftmaxFp32Attention
from modelzoo.models.vit import VitModel
from tests.support.errors import raises
from tests.support.models.encoder_names import DINO_RULES, VIT_RULES, transformers_names
from tests.support.models.tiny_models import FOUR_HEADS, NO_DROPOUT
from waferstream.core.errors import ConfigError
from waferstream.workload.models import build_model

SECTION = {
    "name": "vision_transformer",
    **FOUR_HEADS,
    **NO_DROPOUT,
    "image_size": [8, 12],
    "patch_size": [4, 2],
    "num_classes": 5,
}
IMAGES = torch.randn(3, 3, 8, 12, generator=torch.Generator().manual_seed(0))
LABELS = torch.tensor([0, 4, 2])


def build(**changes: object) -> VitModel:
    model = build_model(SECTION | changes, seed=0)
    assert isinstance(model, VitModel)
    return model


def test_loss_equals_that_of_transformers() -> None:
    """Of random weights; theirs embeds patches by a convolution."""
    torch.manual_seed(0)
    config = transformers.ViTConfig(
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=48,
        image_size=(8, 12),
        patch_size=(4, 2),
        layer_norm_eps=1e-5,
        num_labels=5,
    )
    theirs, model = transformers.ViTForImageClassification(config).eval(), build()
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.normal_(std=0.3)
        for ours, name in transformers_names(model, "vit", VIT_RULES).items():
            parameter = model.get_parameter(ours)
            parameter.copy_(theirs.get_parameter(name).reshape(parameter.shape))
    expected = theirs(pixel_values=IMAGES, labels=LABELS)
    torch.testing.assert_close(model.classify(IMAGES), expected.logits)
    torch.testing.assert_close(model(IMAGES, LABELS), expected.loss)


def test_loss_equals_that_of_dinov2() -> None:
    """Layers with trained factors, and a head that also reads the mean of the patches."""
    torch.manual_seed(0)
    config = transformers.Dinov2Config(
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        mlp_ratio=2,
        image_size=8,
        patch_size=4,
        layer_norm_eps=1e-5,
        num_labels=5,
    )
    keys = {"image_size": [8, 8], "patch_size": [4, 4], "filter_size": 64}
    model = build(**keys, use_dinov2_classifier=True, layerscale_value=0.5)
    theirs = transformers.Dinov2ForImageClassification(config).eval()
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.normal_(std=0.3)
        for ours, name in transformers_names(model, "dinov2", DINO_RULES).items():
            parameter = model.get_parameter(ours)
            parameter.copy_(theirs.get_parameter(name).reshape(parameter.shape))
    images = IMAGES[..., :8]
    expected = theirs(pixel_values=images, labels=LABELS)
    torch.testing.assert_close(model(images, LABELS), expected.loss)


def test_layers_have_the_stated_attention_and_order() -> None:
    """``attention_softmax_fp32`` picks the attention, ``norm_first`` the place of norms."""
    fp32, fused, post = build(), build(attention_softmax_fp32=False), build(norm_first=False)
    kinds = [isinstance(m.encoder[0].attention, SoftmaxFp32Attention) for m in (fp32, fused)]
    assert kinds == [True, False]
    torch.testing.assert_close(fp32(IMAGES, LABELS), fused(IMAGES, LABELS))
    assert not torch.allclose(fp32(IMAGES, LABELS), post(IMAGES, LABELS))


def test_frozen_model_trains_its_head() -> None:
    model = build(freeze=["^vit_model"], use_dinov2_classifier=True, layerscale_value=0.25)
    trained = {name for name, each in model.named_parameters() if each.requires_grad}
    assert trained == {"classifier.weight", "classifier.bias"}
    assert (model.get_parameter("encoder.1.feed_forward_scale.factor") == 0.25).all()


def test_any_part_can_be_frozen() -> None:
    """By the vendor's names; a pattern must match."""
    model = build(freeze=["embedding_layer", r"transformer_encoder.layers.0\.", "^classifier"])
    trained = {name for name, each in model.named_parameters() if each.requires_grad}
    assert trained
    assert all(name.startswith(("encoder.1.", "norm.")) for name in trained)
    with raises(ConfigError, "freeze-without-match"):
        build(freeze=["^encoder"])


def test_evaluation_counts_right_classes() -> None:
    model = build().eval()
    assert model.accuracy is not None
    best = model.classify(IMAGES).argmax(-1)
    model(IMAGES, torch.stack([best[0], best[1], (best[2] + 1) % 5]))
    assert float(model.accuracy) == pytest.approx(2 / 3)
    assert build(compute_eval_metrics=False).accuracy is None


def test_images_of_another_size_are_refused() -> None:
    with raises(ConfigError, "image-size-mismatch"):
        build()(IMAGES.transpose(2, 3), LABELS)


@pytest.mark.parametrize(
    "change",
    [
        {"patch_size": [3, 2]},
        {"position_embedding_type": "fixed"},
        {"prepend_cls_token": False},
        {"layerscale_value": 0.1, "norm_first": False},
        {"freeze": ["("]},
    ],
)
def test_other_models_are_refused(change: dict[str, object]) -> None:
    """The error names the key."""
    with pytest.raises(ConfigError) as caught:
        build(**change)
    assert next(iter(change)) in caught.value.what
