"""Encoders that classify have the losses of transformers' models of the same weights."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
import transformers
from torch import nn

from modelzoo.models.bert.config import SummarizationConfig, TunedConfig
from modelzoo.models.bert.tasks import ClassifierModel, SummarizationModel, TokenClassifierModel
from tests.support.models.encoder_names import transformers_names
from tests.support.models.tiny_models import FOUR_HEADS, NO_DROPOUT, TINY_MODELS
from waferstream.core.errors import ConfigError
from waferstream.workload.models import build_model, model_config

IDS = torch.randint(2, 40, (3, 8), generator=torch.Generator().manual_seed(0))
MASK = torch.tensor([[1] * 8, [1] * 5 + [0] * 3, [1] * 8])
SEGMENTS = torch.arange(8).div(4, rounding_mode="floor").expand(3, 8)
INPUTS = {"input_ids": IDS, "attention_mask": MASK, "token_type_ids": SEGMENTS}


def build(name: str, **changes: object) -> nn.Module:
    sizes = {**TINY_MODELS[name], **FOUR_HEADS, **NO_DROPOUT}
    return build_model({"name": name, **sizes, **changes}, seed=0)


def theirs(kind: Any, model: nn.Module) -> Any:
    """Return a model of transformers with random weights, which ``model`` takes over."""
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=40,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=48,
        max_position_embeddings=8,
        layer_norm_eps=1e-5,
        num_labels=3,
    )
    other = kind(config).eval()
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.normal_(std=0.3)
        for ours, name in transformers_names(model, "bert").items():
            model.get_parameter(ours).copy_(other.get_parameter(name))
    return other


def test_classifier_equals_that_of_transformers() -> None:
    model = build("bert/classifier")
    labels = torch.tensor([0, 2, 1])
    expected = theirs(transformers.BertForSequenceClassification, model)(**INPUTS, labels=labels)
    torch.testing.assert_close(model(**INPUTS, labels=labels), expected.loss)


def test_token_classifier_equals_that_of_transformers() -> None:
    """The sum of the losses of tokens that count, per sample, times its weight."""
    model = build("bert/token_classifier", loss_weight=0.5)
    scores = theirs(transformers.BertForTokenClassification, model)(**INPUTS).logits
    labels = IDS % 3
    expected = F.cross_entropy(scores[MASK.bool()], labels[MASK.bool()], reduction="sum")
    loss = model(**INPUTS, labels=labels, loss_mask=MASK)
    torch.testing.assert_close(loss, expected * 0.5 / 3)


def test_loss_of_padding_is_a_mean_over_positions() -> None:
    model = build("bert/token_classifier", include_padding_in_loss=True)
    ones = torch.ones_like(MASK)
    summed = build("bert/token_classifier")(**INPUTS, labels=IDS % 3, loss_mask=ones)
    torch.testing.assert_close(model(**INPUTS, labels=IDS % 3, loss_mask=ones), summed / 8)


def test_summary_reads_the_first_token_of_sentences() -> None:
    """Each of those that count adds its loss."""
    model = build("bert/extractive_summarization", loss_weight=0.25)
    assert isinstance(model, SummarizationModel)
    places = torch.tensor([[0, 4, 0], [0, 0, 0], [2, 3, 7]])
    weights = torch.tensor([[1.0, 1.0, 0.0], [1.0, 0.0, 0.0], [1.0, 1.0, 1.0]])
    labels = torch.tensor([[1, 0, 1], [0, 1, 1], [1, 1, 0]])
    loss = model(**INPUTS, labels=labels, cls_indices=places, cls_weights=weights)
    scores = model.classifier(model.encode(IDS, MASK, SEGMENTS)).log_softmax(-1)
    counted = [(row, place) for row, place in weights.nonzero().tolist()]
    expected = -sum(scores[r, places[r, p], labels[r, p]] for r, p in counted)
    torch.testing.assert_close(loss, expected * 0.25 / 3)


def test_data_states_the_number_of_sentences() -> None:
    """For simulations without data."""
    config = SummarizationConfig().for_data({"max_cls_tokens": 7})
    assert {f.name: f.shape for f in config.features(16)}["cls_indices"] == (7,)


def test_dropout_precedes_the_scores() -> None:
    """In training only, at a rate of its own."""
    for name, key in (
        ("bert/classifier", "task_dropout"),
        ("bert/token_classifier", "encoder_output_dropout_rate"),
    ):
        plain, dropped = build(name), build(name, **{key: 0.5})
        assert isinstance(dropped, ClassifierModel | TokenClassifierModel)
        labels = torch.tensor([0, 2, 1]) if name.endswith("/classifier") else IDS % 3
        batch = INPUTS | {"labels": labels}
        if name == "bert/token_classifier":
            batch["loss_mask"] = MASK
        assert not torch.equal(plain(**batch), dropped(**batch))
        assert torch.equal(plain.eval()(**batch), dropped.eval()(**batch))


@pytest.mark.parametrize(
    ("name", "given", "embedding", "attention"),
    [
        ("bert/classifier", {}, 0.3, 0.1),
        ("bert/classifier", {"attention_dropout_rate": None}, 0.3, 0.3),
        ("bert/token_classifier", {}, 0.3, 0.0),
        ("bert/extractive_summarization", {}, 0.1, 0.1),
    ],
)
def test_dropout_rates_that_are_not_given(
    name: str, given: dict[str, object], embedding: float, attention: float
) -> None:
    """Of the embedding that of the layers, except for summaries; of attention only where null."""
    config = model_config({"name": name, **TINY_MODELS[name], "dropout_rate": 0.3, **given})
    assert isinstance(config, TunedConfig)
    assert config.dropout_rate == 0.3
    assert (config.embedding_dropout_rate, config.attention_dropout_rate) == (embedding, attention)


def test_padding_has_the_name_of_the_tasks() -> None:
    """The vendor's configurations of tasks name its token ``embedding_pad_token_id``."""
    model = build("bert/classifier", embedding_pad_token_id=1)
    assert isinstance(model, ClassifierModel)
    assert model.embedding.token.padding_idx == 1


def test_metrics_of_an_evaluation() -> None:
    """Of pairs from domains of the training, and from others."""
    model = build("bert/classifier", compute_eval_metrics=True, num_labels=2)
    assert isinstance(model, ClassifierModel)
    assert model.metrics is not None
    assert model.metrics.f1 is not None
    model.eval()
    scores = model.head(model.encode(IDS, MASK, SEGMENTS)).argmax(-1)
    labels = torch.stack([scores[0], 1 - scores[1], scores[2]])
    matched = torch.tensor([1, 1, 0])
    model(**INPUTS, labels=labels, is_matched=matched, is_mismatched=1 - matched)
    accuracies = (model.metrics.accuracy, model.metrics.matched, model.metrics.mismatched)
    assert [float(each) for each in accuracies] == pytest.approx([2 / 3, 1 / 2, 1.0])
    assert float(model.metrics.f1) == pytest.approx(2 / 3)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("bert/classifier", {"problem_type": "regression"}),
        ("bert/token_classifier", {"compute_eval_metrics": True}),
        ("bert/extractive_summarization", {"num_labels": 3}),
    ],
)
def test_other_heads_are_refused(name: str, change: dict[str, object]) -> None:
    """Instead of ignored."""
    with pytest.raises(ConfigError) as caught:
        build(name, **change)
    assert next(iter(change)) in caught.value.what
