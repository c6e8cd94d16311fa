"""Passage retrieval has the losses of transformers' encoders of the same weights."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
import transformers

from modelzoo.models.dpr import DprModel, TextEncoder
from tests.support.errors import raises
from tests.support.models.encoder_names import transformers_names
from tests.support.models.tiny_models import FOUR_HEADS, NO_DROPOUT, TOKENS
from waferstream.compiler.compile import CompileRequest, compile_step
from waferstream.core.errors import ConfigError
from waferstream.numerics.precision import StreamPrecision
from waferstream.workload.models import build_model, model_config, training_example

ENCODER = {**FOUR_HEADS, **NO_DROPOUT, **TOKENS}
NUM_QUESTIONS, GROUP, NUM_PASSAGES = 4, 2, 3
GENERATOR = torch.Generator().manual_seed(0)


def texts(*shape: int) -> dict[str, torch.Tensor]:
    """Return texts of five to eight tokens, the first three of the first segment."""
    lengths = torch.randint(5, 9, (*shape, 1), generator=GENERATOR)
    return {
        "input_ids": torch.randint(2, 40, (*shape, 8), generator=GENERATOR),
        "attention_mask": (torch.arange(8) < lengths).long(),
        "token_type_ids": (torch.arange(8) >= 3).long().expand(*shape, 8),
    }


QUESTIONS, PASSAGES = texts(NUM_QUESTIONS), texts(NUM_QUESTIONS, NUM_PASSAGES)


def batch(first: int = 0, last: int = NUM_QUESTIONS) -> dict[str, torch.Tensor]:
    questions = {f"questions_{name}": tensor[first:last] for name, tensor in QUESTIONS.items()}
    return questions | {f"ctx_{name}": tensor[first:last] for name, tensor in PASSAGES.items()}


def build(**changes: Any) -> DprModel:
    section = {"name": "dpr", "q_encoder": ENCODER, "ctx_encoder": ENCODER, "group_size": GROUP}
    model = build_model(section | changes, seed=0)
    assert isinstance(model, DprModel)
    return model


def theirs(kind: Any, name: str, ours: TextEncoder) -> Any:
    """Return an encoder of transformers with random weights, which ``ours`` takes over."""
    config = transformers.DPRConfig(
        vocab_size=40,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=48,
        max_position_embeddings=8,
        layer_norm_eps=1e-5,
    )
    other = kind(config).eval()
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.normal_(std=0.3)
        bert = getattr(other, name).bert_model
        for own, their in transformers_names(ours, "bert").items():
            if not own.startswith("pooler"):
                ours.get_parameter(own).copy_(bert.get_parameter(their.removeprefix("bert.")))
    return other


def encoded(model: DprModel) -> tuple[torch.Tensor, torch.Tensor]:
    """Return activations (4, 8, 32) and (4, 3, 8, 32) of encoders of transformers."""
    torch.manual_seed(0)
    question = theirs(transformers.DPRQuestionEncoder, "question_encoder", model.question_encoder)
    passage = theirs(transformers.DPRContextEncoder, "ctx_encoder", model.ctx_encoder)
    flat = {name: tensor.flatten(0, 1) for name, tensor in PASSAGES.items()}
    found = passage.ctx_encoder.bert_model(**flat).last_hidden_state
    asked = question.question_encoder.bert_model(**QUESTIONS).last_hidden_state
    assert torch.equal(asked[:, 0], question(**QUESTIONS).pooler_output)
    return asked, found.unflatten(0, (NUM_QUESTIONS, NUM_PASSAGES))


def expected_loss(
    questions: torch.Tensor, passages: torch.Tensor, temperature: float, *, is_mutual: bool
) -> torch.Tensor:
    """Return the mean over questions, one after the other, of vectors (4, 32) and (4, 3, 32)."""
    losses = []
    for number in range(NUM_QUESTIONS):
        first, place = number // GROUP * GROUP, number % GROUP
        group = slice(first, first + GROUP)
        scores = passages[group].flatten(0, 1) @ questions[number] / temperature
        loss = -scores.log_softmax(0)[place * NUM_PASSAGES]
        if is_mutual:
            back = questions[group] @ passages[number, 0] / temperature
            loss = 0.75 * loss - 0.25 * back.log_softmax(0)[place]
        losses.append(loss)
    return torch.stack(losses).mean()


@pytest.mark.parametrize(("temperature", "is_mutual"), [(1.0, False), (10.0, False), (10.0, True)])
def test_loss_equals_that_of_transformers(temperature: float, is_mutual: bool) -> None:
    """The other passages of a group are negatives, and no others."""
    model = build(softmax_temperature=temperature, mutual_information=is_mutual)
    questions, passages = encoded(model)
    expected = expected_loss(questions[:, 0], passages[:, :, 0], temperature, is_mutual=is_mutual)
    torch.testing.assert_close(model(**batch()), expected)


@pytest.mark.parametrize("pooler_type", ["mean", "ffn_pooler"])
def test_texts_are_pooled_as_stated(pooler_type: str) -> None:
    """By the mean over tokens without padding, or by a projection of the first."""
    model = build(pooler_type=pooler_type, softmax_temperature=4.0)
    questions, passages = encoded(model)
    vectors = (
        pooled(model.question_encoder, questions, QUESTIONS["attention_mask"]),
        pooled(model.ctx_encoder, passages, PASSAGES["attention_mask"]),
    )
    expected = expected_loss(*vectors, 4.0, is_mutual=False)
    torch.testing.assert_close(model(**batch()), expected)


def pooled(encoder: TextEncoder, activations: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Return the vectors of texts that an encoder should give."""
    if encoder.pooler is not None:
        first = F.linear(activations[..., 0, :], encoder.pooler.weight, encoder.pooler.bias)
        return first.tanh()
    return (activations * mask[..., None]).sum(-2) / mask.sum(-1)[..., None]


def test_loss_does_not_depend_on_micro_batches() -> None:
    model = build()
    parts = torch.stack([model(**batch(first, first + GROUP)) for first in (0, GROUP)])
    torch.testing.assert_close(model(**batch()), parts.mean())


def test_micro_batches_that_cut_groups_are_refused() -> None:
    with raises(ConfigError, "group-cut"):
        build()(**batch(0, 3))


def test_encoders_begin_differently() -> None:
    """Also those of one section."""
    model = build(q_encoder=None, ctx_encoder=None, encoder=ENCODER)
    name = "encoder.1.attention.query.weight"
    pair = [each.get_parameter(name) for each in (model.question_encoder, model.ctx_encoder)]
    assert not torch.equal(*pair)


def test_evaluation_ranks_right_passages() -> None:
    """Among those of their groups; the accuracy is the share of first places."""
    model = build(compute_eval_metrics=True).eval()
    assert model.metrics is not None
    questions, passages = encoded(model)
    model(**batch())
    ranks = []
    for number in range(NUM_QUESTIONS):
        first, place = number // GROUP * GROUP, number % GROUP
        scores = passages[first : first + GROUP, :, 0].flatten(0, 1) @ questions[number, 0]
        order = scores.argsort(descending=True).tolist()
        ranks.append(1 + order.index(place * NUM_PASSAGES))
    assert float(model.metrics.accuracy) == ranks.count(1) / NUM_QUESTIONS
    assert float(model.metrics.rank) == sum(ranks) / NUM_QUESTIONS


def test_training_step_compiles() -> None:
    """With dropout; every weight has a gradient."""
    encoder = ENCODER | {"dropout_rate": 0.1}
    section = {"name": "dpr", "encoder": encoder, "group_size": 2, "pooler_type": "ffn_pooler"}
    example = training_example(section, micro_batch_size=4)
    request = CompileRequest(
        StreamPrecision(), micro_batch_size=4, num_micro_batches=2, target="test"
    )
    compiled, _ = compile_step(example.step, example.model, example.inputs, request)
    assert set(compiled.program.trained) == {n for n, _ in example.model.named_parameters()}


def test_segments_follow_from_the_objective_of_before() -> None:
    section = {"name": "dpr", "encoder": {**ENCODER, "disable_nsp": True}}
    assert [each.name for each in model_config(section).features(8)] == [
        "questions_input_ids",
        "questions_attention_mask",
        "ctx_input_ids",
        "ctx_attention_mask",
    ]


@pytest.mark.parametrize(
    "change",
    [
        {"q_encoder": None},
        {"encoder": ENCODER},
        {"use_biencoder": False},
        {"ctx_encoder": {**ENCODER, "hidden_size": 16}},
        {"q_encoder": {**ENCODER, "pooler_nonlinearity": "relu"}},
    ],
)
def test_other_models_are_refused(change: dict[str, Any]) -> None:
    """The error names the key."""
    with pytest.raises(ConfigError) as caught:
        build(**change)
    error = f"{caught.value.what} {caught.value.rule}"
    assert next(iter(change)) in error or "hidden_size" in error
