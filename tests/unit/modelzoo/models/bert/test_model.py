"""Encoders attend in both directions, ignore padding, and learn from masked tokens."""

import math

import pytest
import torch
import transformers

from modelzoo.models.bert.config import BertConfig
from modelzoo.models.bert.model import BertModel, drop_masked
from tests.support.errors import raises
from tests.support.models.encoder_names import transformers_names
from tests.support.models.tiny_models import FOUR_HEADS, NO_DROPOUT, TOKENS
from waferstream.core.errors import ConfigError, DataError
from waferstream.workload.models import build_model

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


def test_roberta_equals_that_of_transformers() -> None:
    """The same scores from the same weights, with positions that skip padding."""
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
    torch.manual_seed(0)
    theirs = transformers.RobertaForMaskedLM(
        transformers.RobertaConfig(
            vocab_size=40,
            intermediate_size=48,
            max_position_embeddings=8 + 3,
            type_vocab_size=1,
            pad_token_id=2,
            layer_norm_eps=1e-5,
            **sizes,
        )
    ).eval()
    model = build(BERT, disable_nsp=True, num_segments=1, pad_token_id=2, **ROBERTA)
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.normal_(std=0.3)
        for ours, name in transformers_names(model, "roberta").items():
            model.get_parameter(ours).copy_(theirs.get_parameter(name))
    tokens, mask = IDS.clamp(min=3), torch.ones_like(IDS)
    tokens[0, 5:], mask[0, 5:] = 2, 0
    encoded = model.encode(tokens, mask, torch.zeros_like(tokens))
    expected = theirs(tokens, attention_mask=mask).logits
    torch.testing.assert_close(model.mlm(encoded)[mask.bool()], expected[mask.bool()])


ROBERTA = {"mask_padding_in_positional_embed": True, "share_embedding_weights": False}


def test_padding_token_gets_no_gradient() -> None:
    """Where it is embedded; its first vector is 0 unless it is token 0."""
    model = build(ESM, pad_token_id=3)
    assert not model.embedding.token.weight[3].any()
    assert build(ESM).embedding.token.weight[0].any()
    tokens = torch.tensor([[5, 3, 6, 3]])
    model.encode(tokens, torch.ones_like(tokens)).square().sum().backward()
    gradient = model.embedding.token.weight.grad
    assert gradient is not None
    assert gradient[[5, 6]].any()
    assert not gradient[3].any()


def test_packed_sequences_do_not_see_each_other() -> None:
    """Two documents in one sequence are encoded as each alone."""
    model = build(ESM, token_dropout=False)
    span = torch.tensor([[2, 1, 0, 4, 3, 2, 1, 0]])
    places = torch.tensor([[0, 1, 2, 0, 1, 2, 3, 4]])
    ones = torch.ones(1, 8, dtype=torch.int64)
    packed = model.encode(IDS[:1], ones, packing=(span, places))
    alone = [model.encode(IDS[:1, part], ones[:, part]) for part in (slice(3), slice(3, 8))]
    torch.testing.assert_close(packed, torch.cat(alone, 1))


def test_mup_scales_scores_weights_and_rates() -> None:
    """Those of both heads by the ratio of widths, hidden weights by its root."""
    mup = {"mup_base_hidden_size": 8, "mup_base_filter_size": 12, "output_logits_alpha": 2.0}
    wide = build(BERT, **mup)
    assert wide.config.scores.scale == 1 / 8
    assert wide.config.logits_scale == 2.0 / 4
    for end, spread in (("query.weight", 0.1), ("up.weight", 0.1), ("down.weight", 0.05)):
        found = [p.flatten() for name, p in wide.named_parameters() if name.endswith(end)]
        assert torch.cat(found).detach().std().item() == pytest.approx(spread, rel=0.05)
    assert wide.config.learning_rate_scales == {
        "encoder_attention": 1 / 4,
        "encoder_input_ffn": 1 / 4,
        "encoder_output_ffn": 1 / 4,
        "pooler": 1 / 4,
    }
    ones = torch.ones_like(IDS)
    batch = {**LABELS, "token_type_ids": SEGMENTS, "next_sentence_label": IDS[:, 0] % 2}
    keys = {"scale_qk_dot_by_d": True, "share_embedding_weights": False}
    halved, plain = build(BERT, **keys), build(BERT, **keys, **mup)
    halved.load_state_dict(plain.state_dict())
    for head in (halved.mlm.head, halved.nsp.classifier):  # type: ignore[union-attr]
        head.weight.data *= 0.5
        head.bias.data *= 0.5
    torch.testing.assert_close(plain(IDS, ones, **batch), halved(IDS, ones, **batch))


def test_dropout_rate_is_that_of_all_places() -> None:
    """Unless they have rates of their own."""
    config = BertConfig(dropout_rate=0.3, attention_dropout_rate=0.2)
    assert (config.embedding_dropout_rate, config.attention_dropout_rate) == (0.3, 0.2)


def test_data_states_the_number_of_labels() -> None:
    """For simulations without data."""
    section = {"max_predictions_per_seq": 3}
    names = {f.name: f.shape for f in BertConfig().for_data(section).features(16)}
    assert names["labels"] == names["masked_lm_positions"] == (3,)
    not_gathered = BertConfig().for_data(section | {"gather_mlm_labels": False})
    assert not_gathered.max_predictions_per_seq is None
