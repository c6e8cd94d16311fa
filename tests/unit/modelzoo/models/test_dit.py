"""The diffusion transformer: patches, noise, conditioning, and sizes that fit."""

import math

import pytest
import torch

from modelzoo.models.blocks.attention import Attention, SoftmaxFp32Attention
from modelzoo.models.dit import (
    DitConfig,
    DitModel,
    LabelEmbedding,
    VaeConfig,
    grid_positions,
    noised,
    sinusoids,
)
from tests.support.models.tiny_models import NO_DROPOUT, SIZES
from waferstream.core.errors import ConfigError
from waferstream.workload.models import build_model

SECTION = {
    "name": "dit",
    **SIZES,
    **NO_DROPOUT,
    "num_classes": 5,
    "vae": {"latent_size": [4, 6], "latent_channels": 3},
    "label_dropout_rate": 0.0,
}
CONFIG = DitConfig(
    vae=VaeConfig(latent_size=(4, 6), latent_channels=3), hidden_size=16, num_heads=2
)


def random(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0))


def build(**changes: object) -> DitModel:
    model = build_model(SECTION | changes, seed=0)
    assert isinstance(model, DitModel)
    return model


def test_noised_equals_noise_added_step_by_step() -> None:
    """Mean and variance are those of as many single steps (DDPM, eq. 2 and 4)."""
    images, noise = random(3, 3, 4, 6), random(3, 3, 4, 6).flip(0)
    steps = torch.tensor([0, 10, 999])
    share = torch.tensor(
        [math.prod(1 - (1e-4 + (0.02 - 1e-4) * s / 999) for s in range(step + 1)) for step in steps]
    )[:, None, None, None]
    expected = share.sqrt() * images + (1 - share).sqrt() * noise
    torch.testing.assert_close(noised(CONFIG, images, noise, steps), expected)


def test_untrained_model_predicts_zero() -> None:
    """All blocks are the identity and the output is 0: the loss is the variance of the noise."""
    model, noise = build(), random(2, 3, 4, 6)
    ones = torch.ones(2, dtype=torch.int64)
    assert not model.predict(noise, ones, ones).any()
    torch.testing.assert_close(model(noise, noise, ones, ones), noise.square().mean())


def test_prediction_depends_on_patches_time_and_class() -> None:
    """With nonzero weights, as after training."""
    model = build()
    for index, parameter in enumerate(model.parameters()):
        torch.nn.init.normal_(parameter, 0, 0.3, torch.Generator().manual_seed(index))
    image, one = random(1, 3, 4, 6), torch.tensor([1])
    changed = image.clone()
    changed[..., 3, 5] += 1
    predicted = model.predict(image, one, one)
    for other in (
        model.predict(changed, one, one),
        model.predict(image, one + 1, one),
        model.predict(image, one, one + 1),
    ):
        assert (predicted - other).abs().min() > 0


@pytest.mark.parametrize("with_mask", [False, True])
def test_softmax_fp32_attention_equals_the_fused_kernel(with_mask: bool) -> None:
    """In fp32, where neither rounds, both are the same function of queries, keys and values."""
    query, key, value = random(3, 2, 2, 6, 8)
    mask = torch.zeros(6, 6).masked_fill(torch.eye(6).bool(), -1e30) if with_mask else None
    fused, three = Attention(CONFIG).eval(), SoftmaxFp32Attention(CONFIG).eval()
    mixed = three.mix(query, key, value, mask)
    torch.testing.assert_close(mixed, fused.mix(query, key, value, mask))


def test_softmax_fp32_attention_widens_16_bit_scores() -> None:
    """Products have 16 bits; the result of the softmax is rounded to 16 bits once."""
    query, key, value = random(3, 2, 2, 6, 8).bfloat16() * 4
    scores = (query @ (key * 8**-0.5).transpose(-2, -1)).double()
    shares = scores.exp() / scores.exp().sum(-1, keepdim=True)
    mixed = SoftmaxFp32Attention(CONFIG).eval().mix(query, key, value, None)
    assert torch.equal(mixed, shares.bfloat16() @ value)


def test_attention_dropout_in_training_only() -> None:
    """At the stated rate, with the others scaled up; none in evaluation."""
    attention = SoftmaxFp32Attention(CONFIG.model_copy(update={"attention_dropout_rate": 0.25}))
    torch.manual_seed(0)
    same, each = torch.zeros(64, 2, 64, 8), torch.eye(64).expand(64, 2, 64, 64)
    shares = attention.mix(same, same, each, None) * 64
    assert sorted(set(shares.flatten().tolist())) == pytest.approx([0, 4 / 3])
    assert (shares == 0).float().mean().item() == pytest.approx(0.25, abs=0.01)
    assert (attention.eval().mix(same, same, each, None) * 64 == 1).all()


@pytest.mark.parametrize(("is_fp32", "kind"), [(True, SoftmaxFp32Attention), (False, Attention)])
def test_attention_softmax_fp32_selects_the_attention(is_fp32: bool, kind: type) -> None:
    """``attention_softmax_fp32`` picks the attention of every layer."""
    layers = build(attention_softmax_fp32=is_fp32).encoder
    assert {type(layer.get_submodule("attention")) for layer in layers} == {kind}


def test_label_dropout_in_training_only() -> None:
    """At the stated rate, by the vector of no class."""
    embedding = LabelEmbedding(CONFIG.model_copy(update={"label_dropout_rate": 0.25}))
    labels = torch.full((4000,), 7)
    torch.manual_seed(0)
    is_none = (embedding(labels) == embedding.table.weight[CONFIG.num_classes]).all(1)
    assert is_none.float().mean().item() == pytest.approx(0.25, abs=0.03)
    assert (embedding.eval()(labels) == embedding.table.weight[7]).all()


def test_grid_positions_are_distinct() -> None:
    """One vector per patch, all different."""
    positions = grid_positions(CONFIG, torch.empty(1))
    assert positions.shape == (6, 16)
    assert len(positions.unique(dim=0)) == 6


def test_sinusoids_match_the_formula() -> None:
    """sin and cos of t / 10000^(2i / size) (Vaswani et al. 2017, section 3.5)."""
    (wave,) = sinusoids(torch.tensor([3.0]), 4)
    expected = [math.sin(3), math.sin(0.03), math.cos(3), math.cos(0.03)]
    torch.testing.assert_close(wave, torch.tensor(expected))


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"patch_size": [3, 2]}, "patch_size"),
        ({"hidden_size": 18}, "hidden_size"),
        ({"frequency_embedding_size": 7}, "frequency_embedding_size"),
        ({"position_embedding_type": "rotary"}, "position_embedding_type"),
    ],
)
def test_inconsistent_dit_sizes_are_refused(change: dict[str, object], key: str) -> None:
    """The error names the key."""
    with pytest.raises(ConfigError) as caught:
        build(**change)
    assert f"'{key}'" in caught.value.what


def test_latents_of_another_scale_are_refused() -> None:
    """The data processor applies the scale, so both sections must agree."""
    with pytest.raises(ConfigError) as caught:
        build_model(SECTION | {"vae": {"scaling_factor": 0.5}}, seed=0)
    assert "scaling_factor" in caught.value.what
