"""Weights that a layer reshapes before it uses them: they stream again, and gradients are right."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from tests.support.kernels import run_eagerly, run_kernels
from tests.support.local_machine import FP32
from tests.support.plain_steps import backward_step
from wsc.compiler.capture import capture
from wsc.compiler.compile import CompileRequest, compile_step
from wsc.compiler.compiled import Compiled
from wsc.compiler.passes import run_passes

WIDTH = 6
Reshape = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


class Reshaped(nn.Module):
    """Three layers, each of which makes something of its weight and a constant mask first."""

    def __init__(self, reshape: Reshape) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.register_buffer("mask", torch.ones(WIDTH, WIDTH).tril())
        self._reshape = reshape

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = nn.functional.linear(x, self._reshape(layer.weight, self.mask), layer.bias).relu()
        return x.square().mean()


def viewed_and_overwritten(weight: torch.Tensor, _mask: torch.Tensor) -> torch.Tensor:
    copy = weight.clone()
    view = copy.t()
    copy.mul_(2.0)
    return view.t()


MADE_OF_CONSTANTS: dict[str, Reshape] = {
    "buffer": lambda weight, mask: weight * mask,
    "made in the step": lambda weight, _: weight * torch.ones(WIDTH, WIDTH).tril(),
    "filled": lambda weight, mask: weight.masked_fill(mask == 0, 0.0),
}
RESHAPES = MADE_OF_CONSTANTS | {
    "viewed, then written over": viewed_and_overwritten,
    "written over": lambda weight, _: weight.clone().mul_(2.0),
    "normalized": lambda weight, _: weight / weight.norm(dim=1, keepdim=True),
}


def compiled(model: nn.Module, batch: torch.Tensor) -> Compiled:
    request = CompileRequest(FP32, len(batch), 1, "test")
    return compile_step(backward_step(model), model, [("x", batch)], request)[0]


@pytest.mark.parametrize("reshape", RESHAPES.values(), ids=RESHAPES)
def test_gradients_are_those_of_autograd(reshape: Reshape) -> None:
    """Bit for bit, whatever is redone in the backward pass."""
    model, batch = Reshaped(reshape), {"x": torch.randn(4, WIDTH)}
    _, gradients = run_kernels(compiled(model, batch["x"]), model, batch)
    _, expected = run_eagerly(model, batch, FP32, 1)
    assert gradients.keys() == expected.keys()
    for name, gradient in gradients.items():
        assert torch.equal(gradient, expected[name]), name


@pytest.mark.parametrize("reshape", MADE_OF_CONSTANTS.values(), ids=MADE_OF_CONSTANTS)
def test_a_weight_with_constants_in_it_is_not_kept(reshape: Reshape) -> None:
    """A masked weight is a weight: nothing that only weights decide reaches another segment."""
    model = Reshaped(reshape)
    step = capture(backward_step(model), model, [("x", torch.zeros(4, WIDTH))], FP32, 1)
    run_passes(step)
    weights, decided_by = set(step.weights), {}
    for node in step.graph.nodes:
        own = {node} if node.op == "placeholder" else set()
        decided_by[node] = own.union(*(decided_by[operand] for operand in node.all_input_nodes))
        for operand in node.all_input_nodes:
            if operand.op == "call_function" and operand.meta["segment"] != node.meta.get(
                "segment"
            ):
                assert not decided_by[operand] or decided_by[operand] - weights, operand.name


@pytest.mark.parametrize("reshape", MADE_OF_CONSTANTS.values(), ids=MADE_OF_CONSTANTS)
def test_a_weight_with_constants_in_it_triggers_work(reshape: Reshape) -> None:
    """The two products that pass gradients on stream it, as the three of the forward pass do."""
    program = compiled(Reshaped(reshape), torch.zeros(4, WIDTH)).program
    products = [
        segment.phase
        for segment in program.segments
        for work in segment.work
        if work.kind == "matmul" and work.streams
    ]
    assert products == ["forward"] * 3 + ["backward"] * 2
