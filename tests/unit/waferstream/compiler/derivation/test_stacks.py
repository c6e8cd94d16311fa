"""Programs with several stacks, with layers that take turns, and with ops over all layers."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from tests.support.programs.plain_steps import backward_step
from waferstream.compiler.compile import CompileRequest, compile_step
from waferstream.compiler.derivation.depth import is_like
from waferstream.compiler.derivation.layer_places import UnequalLayersError
from waferstream.compiler.derivation.stacks import Growth, Stacks
from waferstream.core.hyper_schedules.decays import ConstantLR
from waferstream.core.optimizer import average_weights
from waferstream.core.program.program import Program
from waferstream.core.program.segment import Footprint, OpWork, Segment
from waferstream.numerics.precision import StreamPrecision


class Layer(nn.Module):
    """A layer of one of two kinds."""

    def __init__(self, is_plain: bool) -> None:
        super().__init__()
        self.mix = nn.Linear(8, 8)
        self.is_plain = is_plain

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mixed = self.mix(x)
        return x + (mixed if self.is_plain else mixed.relu())


class Head(nn.Module):
    """A loss."""

    def __init__(self) -> None:
        super().__init__()
        self.out = nn.Linear(8, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        loss: torch.Tensor = self.out(x).square().mean()
        return loss


class Model(nn.Module):
    """An embedding, two stacks and a head."""

    def __init__(self, first: int, second: int, other: int = 100) -> None:
        super().__init__()
        self.embedding = nn.Embedding(16, 8)
        self.layers = nn.ModuleList(Layer(bool(i % other)) for i in range(1, first + 1))
        self.later = nn.ModuleList(Layer(is_plain=True) for _ in range(second))
        self.head = Head()

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embedding(tokens)
        for layer in (*self.layers, *self.later):
            x = layer(x)
        loss: torch.Tensor = self.head(x)
        return loss


def captured(model: Model) -> Program:
    request = CompileRequest(StreamPrecision(), 2, 1, "a test")
    tokens = torch.zeros(2, 5, dtype=torch.int64)
    return compile_step(backward_step(model), model, [("tokens", tokens)], request)[0].program


def shapes(model: Model) -> dict[str, tuple[int, ...]]:
    return {name: tuple(p.shape) for name, p in model.named_parameters()}


def test_two_stacks_are_deepened_at_once() -> None:
    """Each to its own number of layers; with layers that wait for those of the other stack."""
    whole = Model(7, 9)
    few, more = captured(Model(3, 3)), captured(Model(4, 4))
    stacks = Stacks.checked(few, more, shapes(whole), 3)
    assert stacks is not None
    assert is_like(stacks.deepened(few), captured(whole))
    assert [stack.num_layers for stack in stacks.stacks] == [7, 9]


def teacher(layers: int) -> Model:
    """Return a model whose second stack averages the first."""
    model = Model(layers, layers)
    averages, sources = (list(each.parameters()) for each in (model.later, model.layers))
    average_weights(averages, sources, ConstantLR(learning_rate=0.5))
    return model


def test_parameters_that_average_another_stack_average_the_same_layer() -> None:
    whole = teacher(7)
    few, more = captured(teacher(3)), captured(teacher(4))
    stacks = Stacks.checked(few, more, shapes(whole), 3)
    assert stacks is not None
    deep = stacks.deepened(few)
    assert is_like(deep, captured(whole))
    assert deep.parameter["later.5.mix.bias"].average_of == "layers.5.mix.bias"


def test_layers_that_take_turns_are_one_unit() -> None:
    """Not one by one."""
    whole = Model(10, 0, 2)
    few, more = captured(Model(6, 0, 2)), captured(Model(8, 0, 2))
    stacks = Stacks.checked(few, more, shapes(whole), 3, period=2)
    assert stacks is not None
    assert is_like(stacks.deepened(few), captured(whole))
    turns = captured(Model(3, 0, 2)), captured(Model(4, 0, 2))
    assert Stacks.checked(*turns, shapes(whole), 3) is None


def summing(layers: int) -> Segment:
    """Return a segment that stacks a loss of each layer, and hands each its gradient."""
    each = [OpWork("select", "view", 0, (2,)), OpWork("mul", "elementwise", 2, (2,))]
    stack = OpWork("stack", "copy", 2 * layers, (layers, 2))
    mean = OpWork("mean", "reduction", 2, (layers, 2))
    work = (*[each[0]] * layers, stack, mean, *each * layers, stack)
    working = Footprint(0, 8 * layers)
    return Segment(0, "backward", "head", (), (), (), (), (), (), work, (), working)


def test_ops_over_all_layers_grow_with_them() -> None:
    """Their number, shapes, what these compute, and the memory of their segment."""
    growth = Growth.between(summing(3), summing(4))
    assert growth.applied(summing(3), 5) == summing(8)
    with pytest.raises(UnequalLayersError):
        Growth.between(summing(4), summing(3))


@pytest.mark.parametrize("change", ["wider", "fewer"])
def test_checked_refuses_layers_of_another_size(change: str) -> None:
    """The parameters of the model are not those of repeated layers."""
    few, more = captured(Model(3, 0)), captured(Model(4, 0))
    found = shapes(Model(8, 0))
    if change == "wider":
        found["layers.7.mix.weight"] = (8, 16)
    else:
        del found["layers.7.mix.bias"]
    assert Stacks.checked(few, more, found, 3) is None
