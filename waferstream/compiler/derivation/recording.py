"""One run of the user's Python, from which a step follows at several micro-batch sizes.

A step that may be compiled at several sizes is recorded with the samples of a micro-batch as a
symbol, for which each size is then put into its graph (``waferstream.compiler.derivation.resize``).
What that Python decided by the number of samples (a loop over samples, a branch) is a condition of
the recording, and a size that breaks it is refused.

One sample is no value of that symbol: torch treats an extent of one in its own way. With it more
tensors are contiguous, so that ``F.linear`` rounds once instead of twice, and Python's branches on
a single sample are not seen. So a step that runs on one sample is recorded again for that size. A
step that is recorded at one size only is recorded again for the whole batch, since what a loss
reduces over the batch shows in a comparison (waferstream.compiler.results.two_sizes).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import fx, nn
from torch.fx._lazy_graph_module import _LazyGraphModule
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from waferstream.compiler.capture.capture import Step, Taken, capture
from waferstream.compiler.capture.captured import Captured
from waferstream.compiler.capture.traced_buffers import TracedBuffers
from waferstream.compiler.derivation.deepen import deepened, is_like
from waferstream.compiler.derivation.depth import CAPTURED_LAYERS, Stack
from waferstream.compiler.derivation.layer_places import UnequalLayersError
from waferstream.compiler.derivation.resize import resized
from waferstream.core.errors import ApplianceCompilationError
from waferstream.core.program.program import TensorSpec
from waferstream.numerics.precision import StreamPrecision

_REMEDY = "set csx.performance.micro_batch_size to an integer that divides the batch and fits"


class Depth(NamedTuple):
    """The stack whose middle layer is replicated, and the masters of the whole model."""

    stack: Stack
    parameters: tuple[TensorSpec, ...]


@dataclass(frozen=True)
class Recording:
    """A step as recorded for one micro-batch size, or for all."""

    captured: Captured
    size: int
    shapes: ShapeEnv | None = None  # where the samples are a symbol
    depth: Depth | None = None  # where few layers were recorded
    of_size: Callable[[int], Recording] | None = None  # records the step at another size

    def at(self, size: int) -> Captured:
        """Return a captured step of its own, at one micro-batch size.

        A size for which the recording does not hold is recorded by ``of_size``.

        Raises:
            ApplianceCompilationError: The recording does not hold for this size.
        """
        is_other = size == 1 if self.shapes is not None else size != self.size
        if is_other and self.of_size is not None:
            return self.of_size(size).at(size)
        captured = self._shallow_at(size)
        return captured if self.depth is None else deepened(captured, *self.depth)

    def _shallow_at(self, size: int) -> Captured:
        """Return the step at a size, with the layers that were recorded."""
        if self.shapes is not None:
            self._check(self.shapes, size)
            return resized(self.captured, self.shapes, size)
        if size != self.size:
            raise _depends_on_size(f"recorded at {self.size} samples, needed at {size}")
        return _copied(self.captured)

    def with_all_layers(
        self, one_more: Recording, stack: Stack, parameters: tuple[TensorSpec, ...]
    ) -> Recording | None:
        """Return the recording of a model of which this one has CAPTURED_LAYERS layers.

        Args:
            one_more: A recording with one layer more, which must follow from this one.
            stack: The stack and the number of its layers.
            parameters: The masters of the whole model.

        Returns:
            The recording; None if it cannot be derived, since the layers are not equal.
        """
        recorded = one_more.at(self.size)
        by_one = Depth(replace(stack, num_layers=CAPTURED_LAYERS + 1), recorded.parameters)
        try:
            is_equal = is_like(replace(self, depth=by_one).at(self.size), recorded)
            return replace(self, depth=Depth(stack, parameters)) if is_equal else None
        except UnequalLayersError:
            return None

    def _check(self, shapes: ShapeEnv, size: int) -> None:
        """Raise unless everything that was decided by the number of samples holds for ``size``."""
        ((symbol, extents),) = shapes.var_to_range.items()
        if size < extents.lower:
            raise _depends_on_size(
                f"recorded for {extents.lower} samples or more, needed at {size}"
            )
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
    taken: Taken = dict,
) -> Recording:
    """Run the user's step once; arguments and errors as of ``capture``.

    Recording for all sizes takes longer. A micro-batch of one sample is recorded for its own size.
    """
    size = inputs[0][1].shape[0]
    if not for_all_sizes or size == 1:
        captured = capture(step, model, inputs, precision, buffers, taken=taken)
        return Recording(captured, size)
    shapes = ShapeEnv(duck_shape=True)
    try:
        captured = capture(step, model, inputs, precision, buffers, shapes, taken)
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


def _depends_on_size(value: str) -> ApplianceCompilationError:
    return ApplianceCompilationError(
        "what the step records depends on the number of samples in a micro-batch",
        code="step-depends-on-micro-batch-size",
        value=value,
        rule="Python runs once per trace, so its decisions must hold for every size in use",
        remedy=_REMEDY,
    )
