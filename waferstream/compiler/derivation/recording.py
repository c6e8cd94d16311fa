"""One run of the user's Python, from which a step follows at several micro-batch sizes.

A step that may be compiled at several sizes is recorded with the samples of a micro-batch as a
symbol, for which each size is then put into its graph. Numbers that follow from the samples become
constants; all other nodes are copied. No op is dispatched again, which takes torch half a
millisecond for each node. What that Python decided by the number of samples (a loop over samples, a
branch) is a condition of the recording, and a size that breaks it is refused.

One sample is no value of that symbol: torch treats an extent of one in its own way. With it more
tensors are contiguous, so that ``F.linear`` rounds once instead of twice, and Python's branches on
a single sample are not seen. So a step that runs on one sample is recorded again for that size. A
step that is recorded at one size only is recorded again for the whole batch, since what a loss
reduces over the batch shows in a comparison (waferstream.compiler.results.two_sizes). So is one in
which torch itself takes the samples as a number: ``interpolate``, ``lstm`` and ``gru`` read all
extents of a tensor in C++, which knows no symbols.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import sympy  # type: ignore[import-untyped]
import torch
from torch import fx, nn
from torch._subclasses import FakeTensor, FakeTensorMode
from torch.fx._lazy_graph_module import _LazyGraphModule
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.fx.node import map_arg
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only

from waferstream.compiler.capture.capture import Step, Taken, capture
from waferstream.compiler.capture.captured import Captured
from waferstream.compiler.capture.traced_buffers import TracedBuffers
from waferstream.compiler.derivation.deepen import deepened, is_like
from waferstream.compiler.derivation.depth import CAPTURED_LAYERS, Stack
from waferstream.compiler.derivation.layer_places import UnequalLayersError
from waferstream.compiler.storages import GROWS, tensors_of
from waferstream.core.errors import ApplianceCompilationError
from waferstream.core.program.micro_batches import SETTING
from waferstream.core.program.program import TensorSpec
from waferstream.numerics.precision import StreamPrecision

_REMEDY = f"set {SETTING} to an integer that divides the batch and fits"

_NUMBERS = (torch.SymInt, torch.SymFloat, torch.SymBool, int, float, bool)

_SLICES: dict[Any, int] = {torch.ops.aten.slice.Tensor: 1, torch.ops.aten.slice_backward.default: 2}
"""Slices and their gradients, with the position of ``dim, start, end`` among their arguments."""


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
    by_torch: bool = False  # whether torch itself has taken the samples as a number
    depth: Depth | None = None  # where few layers were recorded
    of_size: Callable[[int], Recording] | None = None  # records the step at another size

    def at(self, size: int) -> Captured:
        """Return a captured step of its own, at one micro-batch size.

        A size for which the recording does not hold is recorded by ``of_size``.

        Raises:
            ApplianceCompilationError: The recording does not hold for this size.
        """
        is_other = size == 1 if self.shapes is not None else size != self.size
        if (is_other or self.by_torch) and self.of_size is not None:
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
    shapes, extents = ShapeEnv(duck_shape=True), _Extents()

    def watched(batch: Sequence[torch.Tensor]) -> Sequence[torch.Tensor]:
        with extents:
            return step(batch)

    try:
        captured = capture(watched, model, inputs, precision, buffers, shapes, taken)
    except ApplianceCompilationError as error:
        if error.code == "traced-step-failed":
            error.remedy = _REMEDY
        raise
    return Recording(captured, size, shapes, by_torch=extents.were_read)


class _Extents(TorchDispatchMode):
    """A mode that notes whether C++ code of torch reads the extents of a tensor as numbers.

    What Python reads is a symbol, and asks for no op.
    """

    def __init__(self) -> None:
        TorchDispatchMode.__init__(self)
        self.were_read = False

    def __torch_dispatch__(self, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.were_read |= op is torch.ops.aten.size.default
        return op(*args, **kwargs or {})


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


def resized(captured: Captured, shapes: ShapeEnv, size: int) -> Captured:
    """Return the step for micro-batches of ``size`` samples.

    Args:
        captured: A step whose samples are the symbol of ``shapes``.
        shapes: The environment, whose guards hold for ``size``.
        size: The samples.
    """
    tensors = _Tensors(shapes, size)
    graph = fx.Graph()
    made: dict[fx.Node, Any] = {}
    for node in captured.graph.nodes:
        args, kwargs = map_arg((node.args, node.kwargs), made.__getitem__)
        if isinstance(node.meta.get("val"), _NUMBERS):
            made[node] = _number(node.target, args, kwargs)
            continue
        if node.target in _SLICES and _is_whole(node, tensors):
            made[node] = args[0]
            tensors.share_storage(node.meta["val"], node.all_input_nodes[0].meta["val"])
            continue
        # The name that torch gives the node of a captured step.
        packet = getattr(node.target, "overloadpacket", None)
        name = node.name if packet is None else graph._target_to_str(packet.__name__)
        new = graph.create_node(node.op, node.target, args, kwargs, name, node.type)
        new.meta = {key: value for key, value in node.meta.items() if key != "tensor_meta"}
        if "val" in node.meta:
            new.meta["val"] = tree_map_only(torch.Tensor, tensors.resized, node.meta["val"])
            new.meta[GROWS] = tuple(map(_grows, tensors_of(node)))
        made[node] = new
    inputs = tuple(replace(spec, shape=(size, *spec.shape[1:])) for spec in captured.inputs)
    return replace(captured, module=_LazyGraphModule(captured.module, graph), inputs=inputs)


def _is_whole(node: fx.Node, tensors: _Tensors) -> bool:
    """Return whether a slice takes all samples as part of an index such as ``x[:, 1:]``.

    Torch leaves it out at a known size. It keeps a slice of another dimension if it has recorded
    one, and a slice up to a computed end: that of ``x[: len(x)]`` or ``x.narrow``, no part of an
    index. A lone ``x[0:]``, which it keeps too, is recorded as the first part of ``x[:, 1:]`` is,
    and so left out.
    """
    sliced: Any = node.args[0]
    match node.args[_SLICES[node.target] :]:
        case (int(dim), _, int(), *_) if isinstance(node.meta["val"].shape[dim], torch.SymInt):
            operand, result = (tensors.resized(each.meta["val"]) for each in (sliced, node))
            return operand.shape == result.shape and operand.stride() == result.stride()
    return False


def _grows(tensor: torch.Tensor) -> bool:
    """Return whether the memory behind a tensor grows with the samples."""
    return isinstance(tensor.untyped_storage().nbytes(), torch.SymInt)


def _number(target: Any, args: Any, kwargs: Any) -> Any:
    """Return a number of the step, computed as Python does."""
    args = tree_map_only(fx.Node, lambda node: node.meta["val"], args)
    return target(*args, **kwargs)


class _Tensors:
    """The fake tensors of a step at one size; tensors that shared a storage still share one."""

    def __init__(self, shapes: ShapeEnv, size: int) -> None:
        (self._symbol,) = shapes.var_to_range
        self._size = size
        self._mode = FakeTensorMode(allow_non_fake_inputs=True)
        self._storages: dict[int, torch.UntypedStorage] = {}
        self._extents: dict[sympy.Expr, int] = {}

    def resized(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return the tensor with the extents that it has at this size."""
        given, offset = tensor.untyped_storage(), tensor.storage_offset()
        extents = (given.nbytes(), offset, *tensor.shape, *tensor.stride())
        if not any(isinstance(extent, torch.SymInt) for extent in extents):
            return tensor
        shape, stride = self._all(tensor.shape), self._all(tensor.stride())
        meta = torch.empty(0, dtype=tensor.dtype, device="meta")
        meta.set_(self._storage(given), self._extent(offset), shape, stride)
        return FakeTensor(self._mode, meta, tensor.device)

    def share_storage(self, tensor: torch.Tensor, other: torch.Tensor) -> None:
        """Give a tensor, and its views, the storage of another one that takes its place."""
        storage = self.resized(other).untyped_storage()
        if storage.nbytes() == self._storage(tensor.untyped_storage()).nbytes():
            self._storages[tensor.untyped_storage()._cdata] = storage

    def _storage(self, given: torch.UntypedStorage) -> torch.UntypedStorage:
        """Return the storage at this size: the given one if it has the same bytes at any size."""
        num_bytes: int | torch.SymInt = given.nbytes()
        if not isinstance(num_bytes, torch.SymInt):
            return given
        if given._cdata not in self._storages:
            made = torch.UntypedStorage(self._extent(num_bytes), device="meta")
            self._storages[given._cdata] = made
        return self._storages[given._cdata]

    def _all(self, extents: Sequence[int | torch.SymInt]) -> list[int]:
        return [self._extent(extent) for extent in extents]

    def _extent(self, extent: int | torch.SymInt) -> int:
        """Return the value of an extent; its hint, which ``int`` returns, is that of the symbol."""
        if not isinstance(extent, torch.SymInt):
            return extent
        expression = extent.node.expr
        if expression not in self._extents:
            self._extents[expression] = int(expression.subs(self._symbol, self._size))
        return self._extents[expression]
