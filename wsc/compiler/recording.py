"""One run of the user's Python, from which a step follows at several micro-batch sizes.

A step that may be compiled at several sizes is recorded with the samples of a micro-batch as a
symbol. Its graph is then run again at a concrete size, op by op, without Python of the user. What
that Python decided by the number of samples (a loop over samples, a branch) is a condition of the
recording, and a size that breaks it is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import fx, nn
from torch._subclasses import FakeTensorMode
from torch.fx._lazy_graph_module import _LazyGraphModule, _use_lazy_graph_module
from torch.fx.experimental.proxy_tensor import get_proxy_mode, make_fx
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from wsc.compiler.annotations import annotate_layers
from wsc.compiler.capture import Captured, Step, capture
from wsc.compiler.precision import StreamPrecision
from wsc.compiler.shape_rules import own_shape_rules
from wsc.compiler.traced_buffers import TracedBuffers
from wsc.core.errors import ApplianceCompilationError

_REMEDY = "set csx.performance.micro_batch_size to an integer that divides the batch and fits"

_OWN_META = frozenset({"val", "tensor_meta"})
"""What a node of the new graph has of its own."""


@dataclass(frozen=True)
class Recording:
    """A step as recorded for one micro-batch size, or for all."""

    captured: Captured
    size: int
    shapes: ShapeEnv | None = None  # where the samples are a symbol

    def at(self, size: int) -> Captured:
        """Return a captured step of its own, at one micro-batch size.

        Raises:
            ApplianceCompilationError: The recording does not hold for this size.
        """
        if self.shapes is None:
            if size != self.size:
                raise _depends_on_size(f"recorded at {self.size} samples, needed at {size}")
            return _copied(self.captured)
        self._check(self.shapes, size)
        return _run_again(self.captured, size)

    def _check(self, shapes: ShapeEnv, size: int) -> None:
        """Raise unless everything that was decided by the number of samples holds for ``size``."""
        (symbol,) = shapes.var_to_range
        only = shapes.replacements.get(symbol, size)
        if only != size:
            raise _depends_on_size(f"recorded for {only} samples only, needed at {size}")
        for guard in shapes.guards:
            if guard.expr.subs(symbol, size) != True:  # noqa: E712 (a symbolic truth value)
                raise _depends_on_size(f"{guard.expr} does not hold for {symbol} = {size}")


def record(
    step: Step,
    model: nn.Module,
    inputs: Sequence[tuple[str, torch.Tensor]],
    precision: StreamPrecision,
    buffers: TracedBuffers | None = None,
    *,
    for_all_sizes: bool = False,
) -> Recording:
    """Run the user's step once; arguments and errors as of ``capture``.

    Recording for all sizes takes three times as long. A micro-batch of one sample is recorded for
    its own size, because torch treats an extent of one in its own way.
    """
    size = inputs[0][1].shape[0]
    if not for_all_sizes or size == 1:
        return Recording(capture(step, model, inputs, precision, buffers), size)
    shapes = ShapeEnv(duck_shape=True)
    try:
        captured = capture(step, model, inputs, precision, buffers, shapes)
    except ApplianceCompilationError as error:
        if error.code == "traced-step-failed":
            error.remedy = _REMEDY
        raise
    return Recording(captured, size, shapes)


def _copied(captured: Captured) -> Captured:
    """Return the same step with a graph of its own; fake tensors are shared."""
    graph = fx.Graph()
    outputs = graph.graph_copy(captured.graph, {})
    graph.output(outputs)
    graph.find_nodes(op="output")[0].meta = dict(captured.graph.find_nodes(op="output")[0].meta)
    return replace(captured, module=_LazyGraphModule(captured.module, graph))


class _Again(fx.Interpreter):
    """A run whose nodes keep layer, direction and lines of the nodes that they come from."""

    def run_node(self, n: fx.Node) -> Any:
        mode = get_proxy_mode()
        assert mode is not None, "the run is traced"
        made = mode.tracer.graph._root
        last = made.prev
        result = super().run_node(n)
        recorded = {key: value for key, value in n.meta.items() if key not in _OWN_META}
        while last.next is not made:
            last = last.next
            last.meta.update(recorded)
        return result


def _run_again(captured: Captured, size: int) -> Captured:
    """Run the graph of all sizes on fake tensors of one size; returns the graph of that run."""
    inputs = [replace(spec, shape=(size, *spec.shape[1:])) for spec in captured.inputs]
    shapes = [spec.shape for spec in (*captured.parameters, *inputs)]
    placeholders = captured.graph.find_nodes(op="placeholder")
    dtypes = [node.meta["val"].dtype for node in placeholders]
    fake_mode = FakeTensorMode(allow_non_fake_inputs=True)
    with fake_mode:
        values = [torch.empty(s, dtype=d) for s, d in zip(shapes, dtypes, strict=True)]

    def run(weights: list[torch.Tensor], batch: list[torch.Tensor]) -> list[torch.Tensor]:
        return list(_Again(captured.module).run(weights, batch))

    count = len(captured.parameters)
    with own_shape_rules(), fake_mode, _use_lazy_graph_module(True):
        module = make_fx(run, _allow_non_fake_inputs=True)(values[:count], values[count:])
    annotate_layers(module.graph)
    return replace(captured, module=module, inputs=tuple(inputs))


def _depends_on_size(value: str) -> ApplianceCompilationError:
    return ApplianceCompilationError(
        "what the step records depends on the number of samples in a micro-batch",
        code="step-depends-on-micro-batch-size",
        value=value,
        rule="Python runs once per trace, so its decisions must hold for every size in use",
        remedy=_REMEDY,
    )
