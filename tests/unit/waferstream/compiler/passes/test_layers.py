"""Segments: layers in the order in which they run, forward and then backward."""

from typing import Any

import pytest
import torch
from torch import nn

from tests.support.roles.local_machine import Regression, compile_model, random_batches
from tests.support.runs.tiny_training import GPT, LLAMA, LOADER
from waferstream.compiler.compiled import Compiled
from waferstream.compiler.passes.layers import layer_name
from waferstream.workload.data import build_source
from waferstream.workload.models import build_model


def names(compiled: Compiled) -> list[str]:
    return [f"{segment.layer} {segment.phase}" for segment in compiled.program.segments]


def compiled_gpt(config: dict[str, Any]) -> Compiled:
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
def test_layer_name_ends_with_the_first_number(path: str, layer: str) -> None:
    """Everything inside a numbered block streams with the block."""
    assert layer_name(path) == layer


@pytest.mark.parametrize(
    ("config", "layers"),
    [
        (GPT, ["embedding", "position", "decoder.0", "decoder.1", "norm"]),  # the head is tied
        (LLAMA, ["embedding", "decoder.0", "decoder.1", "norm", "head"]),
    ],
    ids=["gpt", "llama"],
)
def test_layers_run_forward_and_then_backward(
    config: dict[str, Any], layers: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """If no layer counts as small, the segments are the layers of the model."""
    monkeypatch.setattr("waferstream.compiler.passes.layers.SMALL_LAYER_BYTES", 1)
    forward = [f"{layer} forward" for layer in layers]
    backward = [f"{layer} backward" for layer in reversed(layers)]
    assert names(compiled_gpt(config)) == forward + backward


def test_small_layers_join_a_neighbour() -> None:
    """The final norm joins the head."""
    compiled = compiled_gpt(LLAMA)
    assert "norm forward" not in names(compiled)
    (head,) = [s for s in compiled.program.segments if (s.layer, s.phase) == ("head", "forward")]
    assert head.weights == ("norm.weight", "head.weight")


def test_joined_layer_has_the_name_of_its_largest_part() -> None:
    """Not of a small one that follows: rotary positions have no weights."""
    found = names(compiled_gpt({**GPT, "position_embedding_type": "rotary"}))
    assert found[0] == "embedding forward"
    assert not any(name.startswith("position") for name in found)


def test_model_without_submodules_is_one_layer() -> None:
    """Its own parameters belong to the layer "step"."""

    class Flat(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(Regression().layers[0].weight.detach().clone())

        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return ((x @ self.weight) - y).square().mean()

    found = names(compile_model(Flat(), random_batches(1, 4)[0], 2))
    assert found == ["step forward", "step backward"]


def test_layer_that_runs_twice_has_two_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    """A segment is a run of ops; a shared layer streams once for each run."""
    monkeypatch.setattr("waferstream.compiler.passes.layers.SMALL_LAYER_BYTES", 1)

    class Shared(Regression):
        def __init__(self) -> None:
            super().__init__(depth=2)
            self.layers = nn.ModuleList([*self.layers, self.layers[0]])

    compiled = compile_model(Shared(), random_batches(1, 4)[0], 2)
    forward = [segment for segment in compiled.program.segments if segment.phase == "forward"]
    assert [segment.weights for segment in forward].count(("layers.0.weight", "layers.0.bias")) == 2
    gradients = [name for segment in compiled.program.segments for name in segment.gradients]
    assert sorted(gradients) == sorted(set(gradients))
