"""Encoders attend in both directions, ignore padding, and learn from masked tokens."""

import math

import pytest
import torch

from modelzoo.models.bert import BertModel, drop_masked
from modelzoo.models.registry import build_model
from tests.support.errors import raises
from tests.support.tiny_models import FOUR_HEADS, NO_DROPOUT, TOKENS
from wsc.core.errors import ConfigError, DataError

BERT = {"name": "bert", **TOKENS, **FOUR_HEADS, **NO_DROPOUT, "initializer_range": 0.2}
ESM = BERT | {"name": "esm2", "mask_token_id": 1}
BOTH = pytest.mark.parametrize("config", [BERT, ESM], ids=["bert", "esm2"])
IDS = torch.randint(2, 40, (3, 8), generator=torch.Generator().manual_seed(0))
SEGMENTS = torch.arange(8).div(4, rounding_mode="floor").expand(3, 8)
LABELS = {
    "labels": IDS[:, :2],
    "masked_lm_mask": torch.ones(3, 2, dtype=torch.int64),
    "masked_lm_positions": torch.tensor([[0, 5], [3, 4], [7, 1]]),
}


def build(config: dict[str, object], **changes: object) -> BertModel:
    model = build_model(config | changes, seed=0)
    assert isinstance(model, BertModel)
    return model


def encode(
    model: BertModel, tokens: torch.Tensor, mask: torch.Tensor | None = None
) -> torch.Tensor:
    return model.encode(tokens, torch.ones_like(tokens) if mask is None else mask, SEGMENTS)


@BOTH
def test_every_position_depends_on_every_other(config: dict[str, object]) -> None:
    """Changing the last token changes all activations, including the first."""
    model, changed = build(config), IDS.clone()
    changed[:, 7] = (changed[:, 7] + 1) % 38 + 2
    difference = (encode(model, IDS) - encode(model, changed)).abs().amax(-1)
    assert difference.min() > 1e-4


@BOTH
def test_padding_does_not_change_other_positions(config: dict[str, object]) -> None:
    """The tokens at padding do not matter."""
    model, changed = build(config), IDS.clone()
    changed[:, 6:] = 3
    mask = torch.ones_like(IDS)
    mask[:, 6:] = 0
    before, after = encode(model, IDS, mask), encode(model, changed, mask)
    assert torch.equal(before[:, :6], after[:, :6])
    assert not torch.equal(before, encode(model, IDS))


def test_sequence_of_padding_only_has_no_nan() -> None:
    """A NaN would make the loss of the whole batch NaN."""
    assert encode(build(BERT), IDS, torch.zeros_like(IDS)).isfinite().all()


@BOTH
def test_positions_matter(config: dict[str, object]) -> None:
    """The same tokens in another order are encoded as something else."""
    model = build(config, num_segments=0)
    swapped = IDS[:, [1, 0, *range(2, 8)]]
    assert not torch.allclose(encode(model, IDS)[:, 7], encode(model, swapped)[:, 7])


def test_loss_of_masked_tokens_and_next_sentence() -> None:
    """Masked tokens: sum over counted labels, mean over samples, times its weight."""
    model = build(BERT, mlm_loss_weight=0.5)
    mask = torch.tensor([[1, 1], [1, 0], [0, 0]])
    labels = LABELS | {"masked_lm_mask": mask}
    follows = torch.tensor([0, 1, 1])
    ones = torch.ones_like(IDS)
    loss = model(IDS, ones, **labels, token_type_ids=SEGMENTS, next_sentence_label=follows)
    encoded = encode(model, IDS)
    scores = model.mlm(encoded).log_softmax(-1)
    masked = sum(
        scores[row, LABELS["masked_lm_positions"][row, k], LABELS["labels"][row, k]]
        for row, k in mask.nonzero()
    )
    assert model.nsp is not None
    sentence = model.nsp(encoded).log_softmax(-1)[range(3), follows].mean()
    torch.testing.assert_close(loss, -masked * 0.5 / 3 - sentence)


def test_without_masked_lm_positions_every_position_counts() -> None:
    """As if all positions in order were given."""
    model = build(ESM)
    ones = torch.ones_like(IDS)
    named = model(IDS, ones, IDS, ones, torch.arange(8).expand(3, 8))
    torch.testing.assert_close(model(IDS, ones, IDS, ones), named)


@BOTH
def test_untrained_loss_is_that_of_a_uniform_guess(config: dict[str, object]) -> None:
    """Its loss per label is about that of a guess, ln(vocab_size)."""
    model = build(config, disable_nsp=True, initializer_range=0.02)
    loss = model(IDS, torch.ones_like(IDS), **LABELS, token_type_ids=SEGMENTS)
    assert abs(loss.item() / 2 - math.log(40)) < 0.2


def test_norm_first_selects_pre_or_post_norm() -> None:
    """After each addition in BERT, so that activations leave with mean 0 and variance 1."""
    encoded = encode(build(BERT), IDS)
    torch.testing.assert_close(encoded.mean(-1), torch.zeros(3, 8), atol=1e-5, rtol=0)
    first = encode(build(BERT, norm_first=True), IDS)
    assert first.mean(-1).abs().max() > 1e-3


def test_drop_masked_scales_the_other_tokens() -> None:
    """By 0.88 / (1 - share of masked tokens), padding not counted."""
    masked = torch.zeros(1, 4, dtype=torch.bool)
    masked[0, 1] = True
    dropped = drop_masked(torch.ones(1, 4, 2), masked, torch.tensor([[1, 1, 0, 0]]))
    expected = torch.full((1, 4, 2), 0.88 / 0.5)
    expected[0, 1] = 0
    torch.testing.assert_close(dropped, expected)


def test_share_embedding_weights_ties_the_head() -> None:
    """Tied, they are one tensor; otherwise the head has its own."""
    tied, untied = build(BERT), build(BERT, share_embedding_weights=False)
    assert tied.mlm.head.weight is tied.embedding.token.weight
    assert not torch.equal(untied.mlm.head.weight, untied.embedding.token.weight)


def test_batch_without_a_needed_feature_is_refused() -> None:
    """The error names the feature."""
    with raises(DataError, "feature-missing") as caught:
        build(BERT).encode(IDS, torch.ones_like(IDS))
    assert "token_type_ids" in caught.value.what


def test_sequence_longer_than_the_positions_is_refused() -> None:
    """With both numbers, instead of an index error from inside."""
    with raises(ConfigError, "sequence-too-long"):
        build(BERT).encode(torch.zeros(1, 9, dtype=torch.int64), torch.ones(1, 9))


def test_mask_token_outside_the_vocabulary_is_refused() -> None:
    """Only if token_dropout uses it."""
    build(BERT, mask_token_id=40)
    with pytest.raises(ConfigError) as caught:
        build(ESM, mask_token_id=40)
    assert "mask_token_id" in caught.value.what
