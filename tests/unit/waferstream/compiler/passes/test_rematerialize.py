"""Clones of weight-only ops and of recomputed layers: the same bits and less stash."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn
from torch.fx import Node

from tests.support.programs.kernels import run_eagerly, run_kernels
from tests.support.programs.plain_steps import backward_step
from tests.support.roles.local_machine import BF16, FP32
from tests.support.runs.tiny_training import GPT, LLAMA, LOADER
from waferstream.compiler.capture.capture import capture
from waferstream.compiler.compile import CompileRequest, compile_step
from waferstream.compiler.compiled import Compiled
from waferstream.compiler.passes.pipeline import run_passes
from waferstream.core.program.program import Program
from waferstream.core.program.segment import Segment
from waferstream.machine.sram import moments, recompute
from waferstream.numerics.precision import StreamPrecision
from waferstream.workload.data import build_source
from waferstream.workload.models import build_model

WIDTH = 6
Reshape = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


class Reshaped(nn.Module):
    """Three layers, each of which first combines its weight with a constant mask."""

    def __init__(self, reshape: Reshape) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers: Any = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.mask: torch.Tensor
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
def test_gradients_of_reshaped_weights_are_those_of_autograd(reshape: Reshape) -> None:
    """Bit for bit, for every choice of repeated ops."""
    model, batch = Reshaped(reshape), {"x": torch.randn(4, WIDTH)}
    _, gradients = run_kernels(compiled(model, batch["x"]), model, batch)
    _, expected = run_eagerly(model, batch, FP32, 1)
    assert gradients.keys() == expected.keys()
    for name, gradient in gradients.items():
        assert torch.equal(gradient, expected[name]), name


@pytest.mark.parametrize("reshape", MADE_OF_CONSTANTS.values(), ids=MADE_OF_CONSTANTS)
def test_masked_weight_is_not_stashed(reshape: Reshape) -> None:
    """No value of weights and constants alone reaches another segment."""
    model = Reshaped(reshape)
    step = capture(backward_step(model), model, [("x", torch.zeros(4, WIDTH))], FP32)
    run_passes(step)
    weights = set(step.weights)
    decided_by: dict[Node, set[Node]] = {}
    for node in step.graph.nodes:
        own = {node} if node.op == "placeholder" else set()
        decided_by[node] = own.union(*(decided_by[operand] for operand in node.all_input_nodes))
        for operand in node.all_input_nodes:
            if operand.op == "call_function" and operand.meta["segment"] != node.meta.get(
                "segment"
            ):
                assert not decided_by[operand] or decided_by[operand] - weights, operand.name


@pytest.mark.parametrize("reshape", MADE_OF_CONSTANTS.values(), ids=MADE_OF_CONSTANTS)
def test_masked_weight_triggers_work(reshape: Reshape) -> None:
    """In the three products of the forward pass and the two that propagate gradients."""
    program = compiled(Reshaped(reshape), torch.zeros(4, WIDTH)).program
    products = [
        segment.phase
        for segment in program.segments
        for work in segment.work
        if work.kind == "matmul" and work.streams
    ]
    assert products == ["forward"] * 3 + ["backward"] * 2


Both = tuple[nn.Module, Compiled, Compiled]
"""A model, its program, and its program with two layers recomputed."""

BY_CHANCE = replace(BF16, rounding="stochastic")
DROPOUT: dict[str, Any] = dict.fromkeys(("dropout_rate", "attention_dropout_rate"), 0.1)
BATCH = build_source(LOADER | {"batch_size": 2}, "test").batch(0)
LAYERS = ("decoder.0", "decoder.1")


def compiled_with(
    model: nn.Module, layers: tuple[str, ...], precision: StreamPrecision = BF16
) -> Compiled:
    request = CompileRequest(precision, 2, 1, "test", recomputed_layers=layers)
    found, _ = compile_step(backward_step(model), model, list(BATCH.items()), request)
    return found


@pytest.fixture(
    scope="module",
    params=[(GPT, BF16), (GPT | DROPOUT, BY_CHANCE), (LLAMA, BF16)],
    ids=["gpt", "dropout and stochastic rounding", "llama"],
)
def both(request: pytest.FixtureRequest) -> Both:
    sections, precision = request.param
    model = build_model(sections, 0)
    return model, compiled_with(model, (), precision), compiled_with(model, LAYERS, precision)


def kernels(segment: Segment) -> Counter[tuple[str, int, tuple[int, ...]]]:
    """Count the ops of a segment, without views, which cost nothing."""
    return Counter((op.kind, op.flops, op.shape) for op in segment.work if op.kind != "view")


def indices(program: Program) -> list[int]:
    return [s.index for s in program.segments if s.phase == "forward" and s.layer in LAYERS]


def test_recompute_layers_changes_no_bit(both: Both) -> None:
    """Loss and every gradient, with random numbers drawn again by key."""
    model, plain, again = both
    plain_results, plain_gradients = run_kernels(plain, model, BATCH, key=5)
    results, gradients = run_kernels(again, model, BATCH, key=5)
    assert all(map(torch.equal, plain_results, results))
    assert gradients.keys() == plain_gradients.keys()
    assert all(torch.equal(gradients[name], plain_gradients[name]) for name in gradients)


def test_recomputed_layer_stashes_its_outputs_only(both: Both) -> None:
    """The input of the next layer, and at most a mask that all layers share."""
    _, plain, again = both
    for index in indices(plain.program):
        stash = again.program.segments[index].stash
        assert set(stash) < set(plain.program.segments[index].stash)
        assert sum(len(piece.values) for piece in stash) <= 2


def test_recomputed_program_is_as_predicted(both: Both) -> None:
    """waferstream.machine.sram.recompute has the same stash and ops, and at least the working memory."""
    _, plain, again = both
    predicted = recompute(plain.program, indices(plain.program))
    for expected, found in zip(predicted.segments, again.program.segments, strict=True):
        assert [p.footprint for p in found.stash] == [p.footprint for p in expected.stash]
        assert found.working.sample_bytes <= expected.working.sample_bytes
        assert kernels(found) == kernels(expected)
    found_peak, expected_peak, plain_peak = (
        max(m.footprint.of(64) for m in moments(program))
        for program in (again.program, predicted, plain.program)
    )
    assert found_peak <= expected_peak
    assert expected_peak < plain_peak


def test_recompute_layers_ignores_unknown_names() -> None:
    """An unknown name changes no op."""
    model = build_model(GPT, 0)
    assert (
        compiled_with(model, ("encoder.7",)).program.segments
        == compiled_with(model, ()).program.segments
    )


def test_recompute_layers_skips_in_place_layers() -> None:
    """An op that overwrites a value which another op reads must not run twice."""

    class InPlace(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = torch.nn.ModuleList(torch.nn.Linear(4, 4) for _ in range(3))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for layer in self.layers:
                x = layer(x.to(torch.bfloat16)).relu_()
            return x.float().square().mean()

    model = InPlace()

    def program(layers: tuple[str, ...]) -> Compiled:
        request = CompileRequest(BF16, 2, 1, "test", recomputed_layers=layers)
        return compile_step(backward_step(model), model, [("x", torch.ones(2, 4))], request)[0]

    batch = {"x": torch.randn(2, 4)}
    plain, again = program(()), program(("layers.0", "layers.1"))
    expected, found = (run_kernels(each, model, batch)[1] for each in (plain, again))
    assert all(torch.equal(found[name], expected[name]) for name in expected)
