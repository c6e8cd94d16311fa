"""DINO: its encoder is that of transformers, its head and losses follow the published formulas."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
import torch.nn.functional as F
import transformers
from torch import nn
from torch.nn.utils.parametrizations import weight_norm

from modelzoo.models.blocks.residual_layers import TransformerLayer
from modelzoo.models.dino.config import DinoConfig
from modelzoo.models.dino.model import DinoModel
from modelzoo.models.dino.parts import DinoLoss, Head, KoLeoLoss, PatchLoss, Trunk
from modelzoo.models.dino.parts_config import (
    HeadConfig,
    KoLeoLossConfig,
    PatchLossConfig,
    TrunkConfig,
)
from tests.support.errors import raises
from tests.support.models.encoder_names import DINO_RULES, transformers_names
from tests.support.models.tiny_dino import DATA, DINO, HEAD, LOSS, SPREAD, TRUNK
from waferstream.core.config import validate
from waferstream.core.errors import ConfigError
from waferstream.core.optimizer import averages_among
from waferstream.workload.models import build_model, example_inputs
from waferstream.workload.published_names import published_name

GENERATOR = torch.Generator().manual_seed(0)
LARGE, SMALL = torch.randn(3, 2, 3, 12, 12), torch.randn(3, 3, 3, 8, 8)
MASKS = (torch.rand(3, 2, 9, generator=GENERATOR) < 0.4).long()


def build(**changes: Any) -> DinoModel:
    model = build_model(DINO | changes, seed=0)
    assert isinstance(model, DinoModel)
    return model


def trunk(**changes: Any) -> Trunk:
    made = Trunk(validate(TrunkConfig, TRUNK | changes, "test"))
    made.initialize(0)
    return made


def test_trunk_equals_that_of_transformers() -> None:
    """Of random weights, with and without hidden patches."""
    config = transformers.Dinov2Config(
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        mlp_ratio=2,
        image_size=12,
        patch_size=4,
        layer_norm_eps=1e-6,
        layerscale_value=0.5,
    )
    theirs, ours = transformers.Dinov2ForImageClassification(config).eval(), trunk().eval()
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.normal_(std=0.3)
        for own, name in transformers_names(ours, "dinov2", DINO_RULES).items():
            parameter = ours.get_parameter(own)
            parameter.copy_(theirs.get_parameter(name).reshape(parameter.shape))
    for masks in (None, MASKS):
        expected = theirs.dinov2(
            LARGE.flatten(0, 1),
            bool_masked_pos=None if masks is None else masks.flatten(0, 1).bool(),
        ).last_hidden_state
        patches, image = ours(LARGE, masks)
        torch.testing.assert_close(patches.flatten(0, 1), expected)
        assert torch.equal(image, patches[:, :, 0])


def test_small_crops_have_resized_positions() -> None:
    """By the vendor's matrix of what each position adds; the first is that of the whole image."""
    local = {"local_patch_dims": [3, 2], "interpolate_offset": 0.2}
    encoder = trunk(image_size=[32, 24], interpolate_position_embedding=local)
    units = torch.eye(8 * 6).unflatten(1, (1, 8, 6))
    factors = [3.2 / 8, 2.2 / 6]
    matrix = F.interpolate(units, scale_factor=factors, mode="bicubic").flatten(1).T
    weight = encoder.position.weight.detach()
    expected = torch.cat([weight[:1], matrix @ weight[1:]])
    torch.testing.assert_close(encoder._placed(torch.zeros(1, 7, 16))[0].detach(), expected)
    whole = encoder._placed(torch.zeros(1, 49, 16))[0]
    assert torch.equal(whole, weight)


def test_head_equals_layers_of_torch() -> None:
    """A network, vectors of length 1, and a linear layer with normalized weights."""
    head = Head(validate(HeadConfig, HEAD, "test"))
    head.initialize(0)
    last = weight_norm(nn.Linear(8, 20, bias=False))
    with torch.no_grad():
        head.last_layer.weight_g.uniform_(0.5, 2)
        last.parametrizations.weight.original0.copy_(head.last_layer.weight_g)
        last.parametrizations.weight.original1.copy_(head.last_layer.weight_v)
    x = torch.randn(3, 2, 9, 16)
    inner = F.gelu(head.mlp[2](F.gelu(head.mlp[0](x))))
    torch.testing.assert_close(head(x), last(F.normalize(head.mlp[4](inner), dim=-1)))
    frozen = Head(validate(HeadConfig, HEAD | {"norm_last_layer": True}, "test"))
    frozen.initialize(0)
    assert not frozen.last_layer.weight_g.requires_grad


def softmax_of(scores: torch.Tensor, center: torch.Tensor, temperature: float) -> torch.Tensor:
    return ((scores - center) / temperature).softmax(-1)


def test_image_loss_compares_different_crops() -> None:
    """Of large crops with each other, and of all small ones with all large ones."""
    loss = DinoLoss(validate(PatchLossConfig, {"name": "iBOTPatchLoss", **LOSS}, "test"))
    student, teacher = torch.randn(3, 2, 20), torch.randn(3, 2, 20)
    small = torch.randn(3, 3, 20)
    for step, temperature in enumerate((0.04, 0.055, 0.07, 0.07)):
        center = loss.center.value.clone()
        terms = [
            -(softmax_of(teacher[b, i], center, temperature) * (view / 0.1).log_softmax(-1)).sum()
            for b in range(3)
            for i in range(2)
            for view in (student[b, 1 - i], *small[b])
        ]
        torch.testing.assert_close(loss(student, teacher, small), torch.stack(terms).mean())
        assert int(loss.center.num_steps) == step
        loss.center.close()
        expected = 0.8 * center + 0.2 * teacher.mean((0, 1))
        torch.testing.assert_close(loss.center.value, expected)


def test_patch_loss_counts_hidden_patches() -> None:
    """Their mean for each image; the center is that of all hidden patches."""
    loss = PatchLoss(validate(PatchLossConfig, {"name": "iBOTPatchLoss", **LOSS}, "test"))
    student, teacher = torch.randn(3, 2, 10, 20), torch.randn(3, 2, 10, 20)
    masks = MASKS.clone()
    masks[0, 0] = 0
    hidden = [(b, v, p) for b, v, p in masks.nonzero().tolist()]
    total = torch.zeros(())
    for b, v, p in hidden:
        taught = softmax_of(teacher[b, v, 1 + p], torch.zeros(20), 0.04)
        entropy = -(taught * (student[b, v, 1 + p] / 0.1).log_softmax(-1)).sum()
        total += entropy / masks[b, v].sum()
    torch.testing.assert_close(loss(teacher, student, masks), total / 6)
    loss.center.close()
    mean = torch.stack([teacher[b, v, 1 + p] for b, v, p in hidden]).mean(0)
    torch.testing.assert_close(loss.center.value, 0.2 * mean)
    loss.eval()
    loss(teacher, student, masks)
    assert not loss.center.total.any()


def test_spread_is_the_distance_of_nearest_images() -> None:
    """Of a group, for each view; and so is the gradient."""
    loss = KoLeoLoss(validate(KoLeoLossConfig, {"name": "KoLeoLoss", "group_size": 3}, "test"))
    vectors = torch.randn(6, 2, 5, requires_grad=True)
    terms = []
    for view, first in ((0, 0), (0, 3), (1, 0), (1, 3)):
        units = F.normalize(vectors[first : first + 3, view], dim=-1)
        for n in range(3):
            others = [(units[n] - units[m]).norm() for m in range(3) if m != n]
            terms.append(-torch.stack(others).min().log())
    found, expected = loss(vectors), 2 * torch.stack(terms).mean()
    torch.testing.assert_close(found, expected)
    gradients = [torch.autograd.grad(each, vectors)[0] for each in (found, expected)]
    torch.testing.assert_close(*gradients)


def test_groups_are_those_of_losses_and_drops() -> None:
    """Micro-batches that cut one are refused."""
    assert build().group_of_samples == 1
    trunks: Any = copy.deepcopy(DINO["image_model_trunks"])
    trunks[1]["image_model"] |= {"stochastic_depth_group_size": 3}
    assert build(image_model_trunks=trunks).group_of_samples == 1
    trunks[1]["image_model"] |= {"stochastic_depth_drop_prob": 0.5}
    model = build(image_model_trunks=trunks, losses=[*DINO["losses"], SPREAD])
    assert model.group_of_samples == 6
    with raises(ConfigError, "group-cut"):
        model(LARGE, SMALL, MASKS)


def test_no_gradient_trains_the_teacher() -> None:
    """It begins as the student does; all other weights have gradients."""
    model = build()
    names: dict[torch.Tensor, str] = {
        parameter: name for name, parameter in model.named_parameters()
    }
    averaged = {each.average: each.source for each in averages_among(names)}
    model(LARGE, SMALL, MASKS).backward()
    for name, parameter in model.named_parameters():
        is_teacher = name.startswith(("trunk_0.", "head_0."))
        assert (name in averaged) == is_teacher
        assert (parameter.grad is None) == is_teacher, name
        if is_teacher:
            assert averaged[name] == name.replace("_0.", "_1.")
            assert torch.equal(parameter, model.get_parameter(averaged[name]))


def test_parts_differ_unless_copied() -> None:
    """Initial weights depend on the seed, the part, and the name."""
    model = build(copy_init_weights=None)
    assert not torch.equal(
        model.get_parameter("head_0.mlp.0.weight"), model.get_parameter("head_1.mlp.0.weight")
    )
    largest = float(model.get_parameter("trunk_1.patch.weight").detach().abs().max())
    assert 0.9 * 48**-0.5 < largest <= 48**-0.5  # kaiming_uniform of slope sqrt(5)
    assert not model.get_parameter("trunk_1.mask_token").any()


def test_stochastic_depth_drops_samples() -> None:
    """Samples skip a part, or groups of them; kept ones are scaled. Evaluation drops nothing."""
    keys: dict[str, Any] = {"stochastic_depth_drop_prob": 0.5, "stochastic_depth_mode": "row"}
    encoder = trunk(**keys, stochastic_depth_drop_prob_schedule="constant", num_hidden_layers=3)
    layer = encoder.encoder[0]
    assert isinstance(layer, TransformerLayer)
    kept = layer.drop_path(torch.ones(64, 2, 4))
    assert set(kept.unique().tolist()) == {0.0, 2.0}
    assert torch.equal(kept, kept[:, :1, :1].expand_as(kept))
    assert torch.equal(layer.eval().drop_path(kept), kept)
    keys |= {"stochastic_depth_mode": "batch", "stochastic_depth_group_size": 4}
    together = trunk(**keys, stochastic_depth_drop_prob_schedule="constant").encoder[0]
    assert isinstance(together, TransformerLayer)
    groups = together.drop_path(torch.ones(64, 2, 4)).unflatten(0, (16, 4))
    assert torch.equal(groups, groups[:, :1].expand_as(groups))
    assert set(groups.unique().tolist()) == {0.0, 2.0}
    linear = trunk(**keys, num_hidden_layers=3)
    assert [getattr(each.drop_path, "rate", 0.0) for each in linear.encoder] == [0.0, 0.25, 0.5]


def test_published_names_are_those_of_filters() -> None:
    names = {published_name(name) for name, _ in build().named_parameters()}
    trunk_1, head_0 = "image_model_trunks.model.1", "heads.model.0"
    assert names >= {
        f"{trunk_1}.embedding_layer.linear_proj.weight",
        f"{trunk_1}.embedding_layer.cls_embedding",
        f"{trunk_1}.embedding_layer.mask_token",
        f"{trunk_1}.embedding_layer.position_embeddings.embed.weight",
        f"{trunk_1}.encoder.transformer_encoder.layers.1.self_attn.proj_q_dense_layer.weight",
        f"{trunk_1}.encoder.transformer_encoder.norm.weight",
        f"{head_0}.mlp.2.bias",
        f"{head_0}.last_layer.weight_v",
    }


def test_features_follow_the_data() -> None:
    config = validate(DinoConfig, DINO, "test").for_data(DATA)
    shapes = {name: tuple(tensor.shape) for name, tensor in example_inputs(config, 4)}
    assert shapes == {
        "global_view": (4, 2, 3, 12, 12),
        "local_view": (4, 3, 3, 8, 8),
        "collated_masks": (4, 2, 9),
    }


@pytest.mark.parametrize(
    ("path", "value", "code"),
    [
        (
            ("image_model_trunks", 1, "forward_args", 0, 0),
            "ssl_transform.output('image')",
            "not-allowed",
        ),
        (
            ("image_model_trunks", 1, "forward_args", 0, 1),
            "ssl_transform.output('local_view')",
            "not-allowed",
        ),
        (("image_model_trunks", 1, "image_model", "use_masked_patches"), False, "not-allowed"),
        (("heads", 1, "forward_args", 0, 0), "image_model_trunks.output(2,0,0)", "not-allowed"),
        (("heads", 1, "forward_args", 0, 0), "image_model_trunks.output(0,1,0)", "not-allowed"),
        (("heads", 1, "forward_args", 0, 0), "image_model_trunks.output(0,0,2)", "not-allowed"),
        (("losses", 0, "loss", "name"), "SinkhornLoss", "unknown-class"),
        (("losses", 0, "loss"), {"name": "KoLeoLoss", "group_size": 1}, "out-of-range"),
        (("losses", 0, "loss"), {"name": "KoLeoLoss"}, "not-allowed"),
        (("losses", 1, "forward_args", 0), ["heads.output(0,1,0)"], "not-allowed"),
        (("ema", 0, "target"), "heads.model(2)", "not-allowed"),
        (("ema", 0, "scheduler_params", "ema_decay_end"), 1.5, "out-of-range"),
        (("ema", 0, "scheduler"), "cosine", "unknown-key"),
        (("freeze", 0), "heads.model.(", "not-allowed"),
    ],
)
def test_wrong_sections_are_refused(path: tuple[Any, ...], value: Any, code: str) -> None:
    section: Any = copy.deepcopy(DINO)
    place = section
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    with raises(ConfigError, code=code):
        validate(DinoConfig, section, "test")
