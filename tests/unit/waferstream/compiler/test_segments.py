"""A captured step cut at its layers: a segment names everything it needs, and nothing else."""

from collections.abc import Callable, Sequence

import pytest
import torch

from tests.support.programs.kernels import run_kernels
from tests.support.roles.local_machine import BF16, FP32, Regression, compile_model, random_batches
from tests.support.runs.tiny_training import GPT, LOADER
from waferstream.compiler.compile import CompileRequest, compile_step
from waferstream.core.program.label_means import SEED_INPUT
from waferstream.core.program.program import BYTES_PER_ELEMENT, Program
from waferstream.workload.data import build_source
from waferstream.workload.models import build_model

Returned = Callable[[Regression, torch.Tensor, Sequence[torch.Tensor]], list[torch.Tensor]]


@pytest.fixture(scope="module")
def gpt() -> Program:
    return compile_model(
        build_model(GPT, 0), build_source(LOADER, "test").batch(0), 11, precision=BF16
    ).program


def test_every_value_is_made_read_and_dropped_once(gpt: Program) -> None:
    """The stash holds a value until its last reader has run."""
    held = {spec.name for spec in gpt.inputs}
    for segment in gpt.segments:
        assert set(segment.inputs) <= held | {SEED_INPUT}
        assert not held & set(segment.outputs)
        held |= set(segment.outputs)
        assert set(segment.drops) <= set(segment.inputs)
        held -= set(segment.drops)
        later = {name for other in gpt.segments[segment.index + 1 :] for name in other.inputs}
        assert held == later & held, "a kept value that no segment reads"
    assert not held


def test_every_gradient_and_result_comes_from_one_segment(gpt: Program) -> None:
    """Gradients of the backward pass, and the loss of the forward pass."""
    gradients = [name for segment in gpt.segments for name in segment.gradients]
    assert sorted(gradients) == sorted(spec.name for spec in gpt.parameters)
    assert all(segment.phase == "backward" for segment in gpt.segments if segment.gradients)
    results = [place for segment in gpt.segments for place, _ in segment.results]
    assert results == list(range(gpt.num_results)) == [0]


def test_stash_bytes_count_storages(gpt: Program) -> None:
    """Views of one tensor take its memory once."""
    first = gpt.segments[0]
    hidden = GPT["hidden_size"] * 2 * 8 * BYTES_PER_ELEMENT["bfloat16"]
    stashed = first.stash_footprint.of(gpt.micro_batch_size)
    assert hidden <= stashed < len(first.outputs) * 4 * hidden


def results_of(returned: Returned) -> tuple[Regression, list[torch.Tensor]]:
    """Return a model, and the results of a step that returns ``returned(model, loss, inputs)``."""
    model, batch = Regression(), {**random_batches(1, 1)[0], "scale": torch.tensor([3.0])}

    def step(inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        loss = model(*inputs[:2])
        loss.backward()
        return returned(model, loss, inputs)

    named = list(batch.items())
    compiled, _ = compile_step(step, model, named, CompileRequest(FP32, 1, 1, "test"))
    results, _ = run_kernels(compiled, model, batch)
    return model, list(results)


def test_step_may_return_more_than_its_loss() -> None:
    """Unchanged inputs, constants, values of weights, and one value twice."""
    model, results = results_of(
        lambda model, loss, inputs: [
            loss,
            inputs[2],
            torch.tensor(2.0),
            model.layers[0].weight.detach().abs().sum(),
            loss.detach(),
        ]
    )
    loss, scale, constant, total, again = results
    assert (float(scale), float(constant)) == (3.0, 2.0)
    assert total == model.layers[0].weight.abs().sum()
    assert loss == again


def test_step_may_return_nothing() -> None:
    """Training without a reported loss."""
    assert results_of(lambda *_: [])[1] == []
