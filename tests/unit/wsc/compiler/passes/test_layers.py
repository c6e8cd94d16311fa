"""Segments: layers in the order in which they run, forward and then backward."""

import pytest
from torch import nn

from modelzoo.data.registry import build_source
from modelzoo.models.registry import build_model
from tests.support.local_machine import Regression, compile_model, random_batches
from tests.support.tiny_training import GPT, LLAMA, LOADER
from wsc.compiler.passes.layers import layer_name


def names(compiled):
    return [f"{segment.layer} {segment.phase}" for segment in compiled.program.segments]


def compiled_gpt(config):
    return compile_model(build_model(config, 0), build_source(LOADER, "test").batch(0), 11)


@pytest.mark.parametrize(
    ("path", "layer"),
    [
        ("decoder.3.ffn.up", "decoder.3"),
        ("decoder.3", "decoder.3"),
        ("embedding", "embedding"),
        ("blocks.11.experts.2.up", "blocks.11"),
        ("layer4.conv", "layer4.conv"),
        ("", ""),
    ],
)
def test_a_layer_is_a_path_up_to_its_first_number(path, layer):
    """So everything inside a numbered block streams with the block."""
    assert layer_name(path) == layer


@pytest.mark.parametrize(
    ("config", "layers"),
    [
        (GPT, ["embedding", "position", "decoder.0", "decoder.1", "norm"]),  # the head is tied
        (LLAMA, ["embedding", "decoder.0", "decoder.1", "norm", "head"]),
    ],
    ids=["gpt", "llama"],
)
def test_layers_run_forward_and_then_backward(config, layers, monkeypatch):
    """With no layer too small to stand alone, the schedule reads like the model."""
    monkeypatch.setattr("wsc.compiler.passes.layers.SMALL_LAYER_BYTES", 1)
    forward = [f"{layer} forward" for layer in layers]
    backward = [f"{layer} backward" for layer in reversed(layers)]
    assert names(compiled_gpt(config)) == forward + backward


def test_small_layers_join_a_neighbour():
    """No message for a few kilobytes: the final norm goes with the head."""
    compiled = compiled_gpt(LLAMA)
    assert "norm forward" not in names(compiled)
    (head,) = [s for s in compiled.program.segments if (s.layer, s.phase) == ("head", "forward")]
    assert head.weights == ("norm.weight", "head.weight")


def test_a_model_without_submodules_is_one_layer():
    """Parameters of the model itself still have a home."""

    class Flat(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(Regression().layers[0].weight.detach().clone())

        def forward(self, x, y):
            return ((x @ self.weight) - y).square().mean()

    found = names(compile_model(Flat(), random_batches(1, 4)[0], 2))
    assert found == ["step forward", "step backward"]


def test_a_layer_that_runs_twice_has_two_segments(monkeypatch):
    """A segment is a run of ops; a shared layer streams again when it comes back."""
    monkeypatch.setattr("wsc.compiler.passes.layers.SMALL_LAYER_BYTES", 1)

    class Shared(Regression):
        def __init__(self):
            super().__init__(depth=2)
            self.layers = nn.ModuleList([*self.layers, self.layers[0]])

    compiled = compile_model(Shared(), random_batches(1, 4)[0], 2)
    forward = [segment for segment in compiled.program.segments if segment.phase == "forward"]
    assert [segment.weights for segment in forward].count(("layers.0.weight", "layers.0.bias")) == 2
    gradients = [name for segment in compiled.program.segments for name in segment.gradients]
    assert sorted(gradients) == sorted(set(gradients))
