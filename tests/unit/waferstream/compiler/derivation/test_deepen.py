"""A step recorded with few layers and deepened is the step recorded with all of them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from tests.support.models.tiny_models import SIZES, TINY_MODELS
from tests.support.programs.plain_steps import backward_step
from tests.support.roles.local_machine import BF16
from waferstream.compiler.capture.capture import masters_of
from waferstream.compiler.compile import CompileRequest, compile_recorded
from waferstream.compiler.derivation.deepen import is_like
from waferstream.compiler.derivation.depth import Stack
from waferstream.compiler.derivation.recording import Recording, record
from waferstream.workload.models import training_example

LAYERS = 8
REQUEST = CompileRequest(BF16, 3, 4, "target", recomputed_layers=("layers.4",), num_short=1)


class Layer(nn.Module):
    """A layer with a residual path, a view, and random numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        added: torch.Tensor = self.linear(x.view(-1, 2, 2).flatten(1))
        return x + torch.dropout(added, 0.1, True) * mask


class Residual(nn.Module):
    """Layers that read a common mask; with ``sums`` the result is of what all of them return."""

    def __init__(self, num_layers: int, *, sums: bool = False) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.layers = nn.ModuleList(Layer() for _ in range(num_layers))
        self.last = nn.Linear(4, 4)
        self.sums = sums

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mask, seen = x > 0, []
        x = self.first(x.to(self.first.weight.dtype))
        for layer in self.layers:
            x = layer(x, mask)
            seen.append(x)
        x = self.last(torch.stack(seen).sum(0) if self.sums else x)
        return x.float().square().sum()


def recorded(model: nn.Module) -> Recording:
    """Return the recording of one training step for all sizes."""
    step, batch = backward_step(model), [("x", torch.zeros(3, 4))]
    return record(step, model, batch, BF16, for_all_sizes=True)


def assert_equal(found: Recording | None, expected: Recording, request: CompileRequest) -> None:
    """Compare the graphs at two sizes, and the compiled programs with their kernels."""
    assert found is not None
    for size in (2, 3):
        assert is_like(found.at(size), expected.at(size))
    (ours, _), (theirs, _) = (compile_recorded(each, request) for each in (found, expected))
    assert ours.program == theirs.program
    assert [kernel.text for kernel in ours.kernels] == [kernel.text for kernel in theirs.kernels]
    assert ours.short is not None
    assert theirs.short is not None
    assert ours.short.segments == theirs.short.segments


@pytest.mark.nightly
def test_deepened_step_is_that_of_all_layers() -> None:
    """Nodes, names, layers, shared memory, and the compiled program with its kernels."""
    few, one_more, whole = (Residual(count) for count in (5, 6, LAYERS))
    stack = Stack("layers", LAYERS)
    found = recorded(few).with_all_layers(recorded(one_more), stack, masters_of(whole))
    assert_equal(found, recorded(whole), REQUEST)


def test_layers_that_are_read_together_are_not_replicated() -> None:
    """The op that reads the results of all layers has other arguments for each number."""
    few, one_more, whole = (Residual(count, sums=True) for count in (5, 6, LAYERS))
    stack = Stack("layers", LAYERS)
    assert recorded(few).with_all_layers(recorded(one_more), stack, masters_of(whole)) is None


def of_family(name: str, num_layers: int, **changes: Any) -> tuple[Recording, nn.Module]:
    """Return the recording of a model of the zoo, and the model."""
    section = {"name": name, **SIZES, **TINY_MODELS[name], **changes}
    example = training_example({**section, "num_hidden_layers": num_layers}, micro_batch_size=3)
    inputs = example.inputs
    return record(example.step, example.model, inputs, BF16, for_all_sizes=True), example.model


ROTARY = {"position_embedding_type": "rotary"}


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("llama", ROTARY),
        ("llama", {**ROTARY, "dropout_rate": 0.1}),
        ("gemma2", {}),
        ("gptj", {}),
        ("gpt2", {}),
    ],
)
def test_deepened_model_is_that_of_all_layers(name: str, changes: dict[str, Any]) -> None:
    """The families of decoders."""
    (few, _), (one_more, _) = (of_family(name, count, **changes) for count in (5, 6))
    expected, model = of_family(name, LAYERS, **changes)
    found = few.with_all_layers(one_more, Stack("decoder", LAYERS), masters_of(model))
    assert_equal(found, expected, REQUEST)


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("mixtral", {}),  # sums over the routings of all layers
        ("gpt2", {"scale_qk_dot_by_layer_idx": True}),
        ("gemma2", {"sliding_window_every_other_decoder_layer": True}),
    ],
)
def test_unequal_layers_are_not_replicated(name: str, changes: dict[str, Any]) -> None:
    """Sums over layers, a constant of each layer, windows in every other layer."""
    (few, _), (one_more, _), (_, model) = (of_family(name, n, **changes) for n in (5, 6, LAYERS))
    assert few.with_all_layers(one_more, Stack("decoder", LAYERS), masters_of(model)) is None
