"""Models of transformers, with their own loss, train as in a plain loop."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

import pytest
import torch

import cstorch
from cstorch import backends
from tests.support.errors import raises
from tests.support.models.transformers_cases import (
    BATCH_SIZE,
    CASES,
    SPEECH,
    VISION_LANGUAGE,
    Case,
)
from tests.support.nightly import nightly
from tests.support.plain_torch.keyed_draws import KeyedDraws
from tests.support.programs.cstorch_program import executor, loader, losses, running_backend
from tests.support.runs.tiny_training import Shape
from waferstream.core.errors import ApplianceCompilationError, WaferStreamError

RELATE_SAMPLES = frozenset({"mixtral", "clip"})  # balance of experts, negatives of the batch
STEPS = 2
LEARNING_RATE = 0.1

State = Mapping[str, torch.Tensor]


def size_of(case: Case) -> int:
    """Return the samples of a micro-batch: all of them where the loss is no sum over samples."""
    return BATCH_SIZE if case.name in RELATE_SAMPLES else 2


def plain_loop(case: Case, batch_draws: Collection[int]) -> tuple[list[float], State]:
    """Train in plain PyTorch; return the mean loss of each step and the model's state.

    ``batch_draws`` are the random ops, counted, that draw once for the batch.
    """
    model = case.model()
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE)
    size, means = size_of(case), []
    count = BATCH_SIZE // size
    for step, batch in enumerate(case.batches(STEPS), start=1):
        total = 0.0
        for index in range(count):
            rows = slice(index * size, (index + 1) * size)
            piece = {name: tensor[rows] for name, tensor in batch.items()}
            with KeyedDraws(index, step, batch_draws=batch_draws):
                loss = model(**piece, **case.arguments).loss
                (loss / count).backward()
            total += loss.item()
        optimizer.step()
        optimizer.zero_grad()
        means.append(torch.tensor(total / count).item())
    return means, model.state_dict()


def on_cluster(case: Case, num_csx: int, size: int) -> tuple[list[float], State, Collection[int]]:
    """Train on a cluster in this process; return what ``plain_loop`` does, and what it takes."""
    model, batches = case.model(), case.batches(STEPS)
    with running_backend(Shape(num_csx)) as backend:
        backends.csx.performance.micro_batch_size = size
        compiled = cstorch.compile(model, backend)
        optimizer = cstorch.optim.SGD(model.parameters(), lr=LEARNING_RATE)

        @cstorch.trace
        def step(batch: dict[str, torch.Tensor]) -> torch.Tensor:
            loss: torch.Tensor = compiled(**batch, **case.arguments).loss
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            return loss

        means = losses(step, executor(STEPS, loader(lambda: batches)))
        trained = {name: tensor.clone() for name, tensor in model.state_dict().items()}
        assert backend.session.execution.training is not None
        batch_draws = backend.session.execution.training.program.batch_draws
    return means, trained, batch_draws


def check(case: Case, num_csx: int) -> None:
    """Compare losses, weights and buffers, bit for bit."""
    found_losses, found, batch_draws = on_cluster(case, num_csx, size_of(case))
    expected_losses, expected = plain_loop(case, batch_draws)
    assert found_losses == expected_losses
    assert found.keys() == expected.keys()
    initial = case.model().state_dict()
    for name, tensor in expected.items():
        assert torch.equal(found[name], tensor), name
    assert any(not torch.equal(tensor, initial[name]) for name, tensor in expected.items())


def check_nearly(case: Case) -> None:
    """Compare losses and weights but for rounding."""
    found_losses, found, batch_draws = on_cluster(case, 2, 2)
    expected_losses, expected = plain_loop(case, batch_draws)
    assert found_losses == pytest.approx(expected_losses, rel=1e-6)
    for weight, tensor in expected.items():
        torch.testing.assert_close(found[weight], tensor, rtol=1e-5, atol=1e-6)


NIGHTLY = """
    gpt2-eager llama-eager llama2-grouped-queries llama-dynamic-rope qwen2 gemma gemma2 qwen3-moe
    gpt-oss mistral phi phi3 deberta-v2 modernbert convnext swin ast
    olmo2 starcoder2 cohere2 granite glm4 smollm3 olmoe deepseek-v3 qwen3-next lfm2 rwkv xlstm mamba2
    electra albert dinov2 mobilenet-v2 regnet bart
    gpt-j gpt-neox llama3-rope qwen3 gemma3 falcon opt bloom mpt roberta whisper
"""
"""Further members of families of which another one is trained in every run of the suite."""


def cases() -> list[Any]:
    """Return all cases, with a mark on those of the nightly run."""
    marks = {True: [pytest.mark.nightly], False: []}
    return [
        pytest.param(case, id=case.name, marks=marks[case.name in NIGHTLY.split()])
        for case in CASES
    ]


@pytest.mark.parametrize("case", cases())
def test_model_of_transformers_trains_as_in_a_plain_loop(case: Case) -> None:
    """Two steps on two systems, or on one, give the losses and weights of the loop."""
    check(case, num_csx=1 if case.name in RELATE_SAMPLES else 2)


@pytest.mark.parametrize("name", ["mixtral", *nightly("clip")])
def test_model_that_relates_samples_is_refused_for_several_micro_batches(name: str) -> None:
    """With the line of the library."""
    (case,) = (case for case in CASES if case.name == name)
    with raises(ApplianceCompilationError, "loss-relates-samples") as caught:
        on_cluster(case, 2, 2)
    assert f"modeling_{name}.py" in str(caught.value.where)


@pytest.mark.parametrize("name", ["llava", *nightly("paligemma", "gemma3-images")])
def test_vision_language_model_trains_with_the_losses_of_a_plain_loop(name: str) -> None:
    """Weights differ by the rounding of gradients of image features, which lie otherwise."""
    check_nearly(next(case for case in VISION_LANGUAGE if case.name == name))


@pytest.mark.nightly
@pytest.mark.parametrize("case", SPEECH, ids=lambda case: case.name)
def test_speech_model_trains_with_the_losses_of_a_plain_loop(case: Case) -> None:
    """Its loss selects labels by a mask; it is computed as a recursion over padded ones."""
    check_nearly(case)


def test_text_with_other_image_tokens_than_images_ends_the_run() -> None:
    """As in the library, whose line the error names."""
    (case,) = (case for case in VISION_LANGUAGE if case.name == "llava")

    def spoiled(generator: torch.Generator) -> dict[str, torch.Tensor]:
        batch = case.make_batch(generator)
        batch["input_ids"][-1, 1] = 3
        return batch

    with pytest.raises(WaferStreamError) as caught:
        on_cluster(replace(case, make_batch=spoiled), 2, 2)
    assert "modeling_llava.py" in str(caught.value)


@pytest.mark.nightly
def test_number_of_systems_does_not_change_a_model_of_transformers() -> None:
    """One system gives the bits of the loop, too."""
    check(CASES[0], num_csx=1)
