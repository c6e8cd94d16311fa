"""A program with many layers from a capture with five."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from tests.support.programs.plain_steps import backward_step
from waferstream.compiler.compile import CompileRequest, compile_step
from waferstream.compiler.derivation.depth import CAPTURED_LAYERS, Stack, is_like, named_by_place
from waferstream.core.program.program import Program
from waferstream.numerics.precision import StreamPrecision


class Layer(nn.Module):
    """A layer that reads its predecessor, a mask without and a condition with a gradient."""

    def __init__(self, is_plain: bool) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(8)
        self.mix = nn.Linear(8, 8)
        self.is_plain = is_plain

    def forward(self, x: torch.Tensor, mask: torch.Tensor, condition: torch.Tensor) -> torch.Tensor:
        mixed = self.mix(self.norm(x) + condition)
        return x + (mixed if self.is_plain else mixed.relu()) * mask


class Model(nn.Module):
    """A stack between an embedding and a head that share their weights.

    Every ``other``-th layer is of another kind.
    """

    def __init__(self, num_layers: int, other: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(16, 8)
        self.condition = nn.Linear(8, 8)
        kinds = [bool(i % other) for i in range(1, num_layers + 1)]
        self.layers = nn.ModuleList(Layer(is_plain) for is_plain in kinds)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embedding(tokens)
        mask, condition = (tokens > 3).unsqueeze(-1) * 1.0, self.condition(x.detach())
        for layer in self.layers:
            x = layer(x, mask, condition)
        return nn.functional.linear(x, self.embedding.weight).square().mean()


def captured(num_layers: int, other: int = 100) -> Program:
    model = Model(num_layers, other)
    request = CompileRequest(StreamPrecision(), 2, 1, "a test")
    tokens = torch.zeros(2, 5, dtype=torch.int64)
    return compile_step(backward_step(model), model, [("tokens", tokens)], request)[0].program


@pytest.fixture(scope="module")
def shallow() -> Program:
    return captured(CAPTURED_LAYERS)


@pytest.mark.parametrize("num_layers", [5, 6, 9])
def test_deepened_equals_a_capture_with_all_layers(shallow: Program, num_layers: int) -> None:
    """Every segment, weight, value, footprint and op; only digest and names of values differ."""
    deep = Stack.of(shallow, num_layers).deepened(shallow)
    assert is_like(deep, captured(num_layers))
    assert deep.digest != shallow.digest


def test_names_inserts_the_weights_of_all_copies(shallow: Program) -> None:
    """In the order of the model."""
    stack = Stack.of(shallow, 7)
    names = ["embedding.weight", *(f"layers.{i}.mix.weight" for i in range(5))]
    assert stack.names(names) == ("embedding.weight", *(f"layers.{i}.mix.weight" for i in range(7)))
    assert stack.names(shallow.parameter) == tuple(stack.deepened(shallow).parameter)


def test_named_by_place_is_idempotent(shallow: Program) -> None:
    """And is_like ignores the names of values."""
    named = named_by_place(shallow)
    assert named_by_place(named) == named != shallow
    assert is_like(named, shallow)


def test_stack_of_refuses_another_number_of_layers() -> None:
    """There is no middle layer to repeat."""
    with pytest.raises(ValueError, match="5 layers"):
        Stack.of(captured(4), 7)
