"""A captured step cut at its layers: everything a segment needs is named, and nothing else."""

import pytest
import torch

from modelzoo.data.registry import build_source
from modelzoo.models.registry import build_model
from tests.support.kernels import run_kernels
from tests.support.local_machine import BF16, FP32, Regression, compile_model, random_batches
from tests.support.tiny_training import GPT, LOADER
from wsc.compiler.compile import CompileRequest, compile_step
from wsc.core.program import BYTES_PER_ELEMENT


@pytest.fixture(scope="module")
def gpt():
    return compile_model(
        build_model(GPT, 0), build_source(LOADER, "test").batch(0), 11, precision=BF16
    ).program


def test_every_value_is_made_before_it_is_read_and_dropped_once(gpt):
    """The stash holds what later segments read, until the last of them has read it."""
    held = {spec.name for spec in gpt.inputs}
    for segment in gpt.segments:
        assert set(segment.inputs) <= held
        assert not held & set(segment.outputs)
        held |= set(segment.outputs)
        assert set(segment.drops) <= set(segment.inputs)
        held -= set(segment.drops)
        later = {name for other in gpt.segments[segment.index + 1 :] for name in other.inputs}
        assert held == later & held, "something is kept that nobody reads"
    assert not held


def test_every_gradient_and_result_comes_from_one_segment(gpt):
    """Gradients of the backward pass, and the loss of the forward pass."""
    gradients = [name for segment in gpt.segments for name in segment.gradients]
    assert sorted(gradients) == sorted(spec.name for spec in gpt.parameters)
    assert all(segment.phase == "backward" for segment in gpt.segments if segment.gradients)
    results = [place for segment in gpt.segments for place, _ in segment.results]
    assert results == list(range(gpt.num_results)) == [0]


def test_the_stash_is_counted_by_storage(gpt):
    """Views of one tensor take its memory once; it is never less than the largest value."""
    first = gpt.segments[0]
    hidden = GPT["hidden_size"] * 2 * 8 * BYTES_PER_ELEMENT["bfloat16"]
    stashed = first.stash_bytes(gpt.micro_batch_size)
    assert hidden <= stashed < len(first.outputs) * 4 * hidden


def results_of(handed_out):
    """A model, and what a step that returns ``handed_out(model, loss, inputs)`` computes."""
    model, batch = Regression(), {**random_batches(1, 1)[0], "scale": torch.tensor([3.0])}

    def step(inputs):
        loss = model(*inputs[:2])
        loss.backward()
        return handed_out(model, loss, inputs)

    named = list(batch.items())
    compiled, _ = compile_step(step, model, named, CompileRequest(FP32, 1, 1, "test"))
    results, _ = run_kernels(compiled, model, batch)
    return model, results


def test_a_step_may_return_more_than_its_loss():
    """Inputs as they came, constants, values of weights, and one value twice."""
    model, results = results_of(
        lambda model, loss, inputs: [
            loss,
            inputs[2],
            torch.tensor(2.0),
            model.layers[0].weight.detach().norm(),
            loss.detach(),
        ]
    )
    loss, scale, constant, norm, again = results
    assert (scale, constant) == (3.0, 2.0)
    assert norm == model.layers[0].weight.norm()
    assert loss == again


def test_a_step_may_return_nothing():
    """Training without looking."""
    assert results_of(lambda *_: [])[1] == []
