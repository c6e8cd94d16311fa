"""Kernels are text that any process turns back into the same function."""

import pickle
from typing import Any

import pytest
import torch
from torch import fx

from tests.support.roles.local_machine import Regression, compile_model, random_batches
from waferstream.compiler.compiled import Compiled
from waferstream.core.program.kernel_source import KernelSource, kernel_source
from waferstream.core.program.program import Program
from waferstream.core.program.segment import Segment


class Net(Regression):
    """Random numbers, a constant tensor, an infinity and a dtype in one step."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        keep = torch.nn.functional.dropout(x, 0.5)
        scale = torch.tensor([1.0, 2.0, 3.0, 4.0])
        masked = torch.where(keep > 0, keep * scale, -float("inf")).softmax(-1)
        return super().forward(masked, y)


@pytest.fixture(scope="module")
def compiled() -> Compiled:
    return compile_model(Net(), random_batches(1, 4)[0], 2)


def outputs(source: KernelSource, segment: Segment, program: Program) -> tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(0)
    weights = [
        torch.randn(program.parameter[n].shape, generator=generator) for n in segment.weights
    ]
    shapes = {spec.name: spec.shape for spec in program.inputs}
    inputs: list[Any] = [
        7 if name == "random_key" else torch.randn(shapes[name], generator=generator)
        for name in segment.inputs
    ]
    return source.build()(*weights, *inputs)


def test_kernel_source_round_trips_through_pickle(compiled: Compiled) -> None:
    """Pickled and built again it gives the same bits."""
    first, segment = compiled.kernels[0], compiled.program.segments[0]
    again = pickle.loads(pickle.dumps(first))
    before, after = (outputs(kernel, segment, compiled.program) for kernel in (first, again))
    assert len(before) == len(segment.outputs) > 0
    for a, b in zip(before, after, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=0, equal_nan=True)


def test_kernel_source_text_is_readable_python(compiled: Compiled) -> None:
    """One line of Python per op, in aten's names."""
    text = compiled.kernels[0].text
    compile(text, "kernel", "exec")
    assert "def forward(self, " in text
    assert "torch.ops.aten.tanh.default(" in text


def test_kernel_source_holds_constants(compiled: Compiled) -> None:
    """A tensor that the step makes from numbers is part of the kernel."""
    constants = [c for kernel in compiled.kernels for c in kernel.constants.values()]
    assert any(torch.equal(c, torch.tensor([1.0, 2.0, 3.0, 4.0])) for c in constants)


def test_kernel_source_names_only_own_modules(compiled: Compiled) -> None:
    """A kernel needs torch and WaferStream, nothing of the user's."""
    modules = {module for kernel in compiled.kernels for module, _ in kernel.modules.values()}
    assert modules == {"waferstream.numerics.keyed_random"}


def test_kernel_source_frees_intermediates(compiled: Compiled) -> None:
    """Otherwise a segment would need the memory of all its ops at once."""
    assert all("= None" in kernel.text for kernel in compiled.kernels)


def test_kernel_source_builds_a_function_of_nodes() -> None:
    """Inputs in the order given, outputs in the order given, nothing in between is returned."""
    graph = fx.Graph()
    a, b = graph.placeholder("a"), graph.placeholder("b")
    total = graph.call_function(torch.ops.aten.add.Tensor, (a, b))
    twice = graph.call_function(torch.ops.aten.mul.Tensor, (total, 2))
    graph.output(twice)
    module = fx.GraphModule({}, graph)
    kernel = kernel_source(module, [total, twice], [b, a], [twice, total]).build()
    assert kernel(torch.tensor(1.0), torch.tensor(10.0)) == (torch.tensor(22.0), torch.tensor(11.0))


def test_kernel_source_keeps_overloads_apart() -> None:
    """Each op of the text is a global of its own."""
    graph = fx.Graph()
    a = graph.placeholder("a")
    rows = graph.call_function(torch.ops.aten.sum.dim_IntList, (a, [1]))
    total = graph.call_function(torch.ops.aten.sum.default, (rows,))  # no overload takes both
    graph.output((rows, total))
    module = fx.GraphModule({}, graph)
    found = kernel_source(module, [rows, total], [a], [rows, total]).build()(torch.ones(2, 3))
    assert [value.tolist() for value in found] == [[3.0, 3.0], 6.0]
