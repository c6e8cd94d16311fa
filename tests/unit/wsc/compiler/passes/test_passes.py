"""The passes keep the numerics, and leave behind what each of them promises."""

import pytest
import torch

from modelzoo.data.registry import build_source
from modelzoo.models.registry import build_model
from tests.support.kernels import run_eagerly, run_kernels
from tests.support.local_machine import BF16, FP32, Regression, random_batches
from tests.support.plain_steps import backward_step
from tests.support.tiny_training import GPT, LLAMA, LOADER
from wsc.compiler.capture import capture
from wsc.compiler.compile import CompileRequest, compile_step
from wsc.compiler.passes import OPTIONAL, run_passes

ALIASES = {torch.ops.aten.detach.default, torch.ops.aten.alias.default}


def captured(config=GPT, precision=FP32):
    model = build_model(config | {"num_hidden_layers": 1}, 0)
    batch = build_source(LOADER, "test").batch(0)
    inputs = [(name, tensor[:2]) for name, tensor in batch.items()]
    return capture(backward_step(model), model, inputs, precision, 11)


def calls(found):
    return [node for node in found.graph.nodes if node.op == "call_function"]


def sources_of(graph):
    """The placeholders that each node is made of."""
    sources = {}
    for node in graph.nodes:
        own = {node} if node.op == "placeholder" else set()
        sources[node] = own.union(*(sources[operand] for operand in node.all_input_nodes))
    return sources


@pytest.mark.parametrize("precision", [FP32, BF16], ids=["fp32", "bf16"])
@pytest.mark.parametrize("config", [GPT, LLAMA], ids=["gpt", "llama"])
def test_nothing_made_of_weights_alone_crosses_into_another_segment(config, precision, monkeypatch):
    """Casts and transposes of weights are redone where they are read."""
    monkeypatch.setattr("wsc.compiler.passes.layers.SMALL_LAYER_BYTES", 1)
    step = captured(config, precision)
    run_passes(step)
    weights, sources = set(step.weights), sources_of(step.graph)
    crossing = 0
    for node in calls(step):
        for operand in node.all_input_nodes:
            if operand.op == "call_function" and operand.meta["segment"] != node.meta["segment"]:
                crossing += 1
                assert not sources[operand] or sources[operand] - weights, operand.name
    assert crossing


def test_every_op_has_a_segment_and_a_family():
    """What the later steps of the compiler read is there, on clones too."""
    step = captured()
    run_passes(step)
    for node in calls(step):
        assert node.meta["segment"].phase in {"forward", "backward"}
        assert node.meta["family"]


def test_aliases_are_gone():
    """Detach means nothing when autograd is over."""
    step = captured()
    assert any(node.target in ALIASES for node in calls(step))
    run_passes(step)
    assert not any(node.target in ALIASES for node in calls(step))


@pytest.mark.parametrize("disabled", [(), *[(name,) for name in sorted(OPTIONAL)], tuple(OPTIONAL)])
def test_optional_passes_change_no_bit(disabled):
    """Any of them may be left out when something is to be found out."""
    model, batch = Regression(depth=3), random_batches(1, 2)[0]
    request = CompileRequest(FP32, 2, 1, "test", disabled_passes=disabled)
    compiled, _ = compile_step(backward_step(model), model, list(batch.items()), request)
    results, gradients = run_kernels(compiled, model, batch)
    loss, expected = run_eagerly(model, batch, FP32, 1)
    assert torch.equal(results[0], loss)
    assert all(torch.equal(gradients[name], expected[name]) for name in expected)


@pytest.mark.parametrize("name", ["assign_segments", "rematerialize_weights", "no_such_pass"])
def test_other_passes_cannot_be_left_out(name):
    """A program without them would be wrong, so asking for that is an error."""
    with pytest.raises(ValueError, match=name):
        run_passes(captured(), disabled=[name])
