"""The cut through a captured step: what depends on buffers that it writes, and the rest.

Batch norm falls in two parts: the statistics of a micro-batch, and the update of running
statistics. The op of torch does both. As the running statistics do not change its result in
training, a micro-batch computes its own mean and unbiased variance, and the update takes them in
later:

    mean      fl(fl(k r) + fl(m x))             two roundings of the product sum
    variance  fl(fl(k r) + m x)                 a fused multiply-add, of fp32 inputs
              as the mean                       of inputs in half precision

with k = fl(1 - m). If the input is contiguous in no memory format, both updates are computed in
fp64 and rounded once, and the variance of fp32 inputs is not rounded before. These are the
roundings of aten.native_batch_norm on x86 with AVX2 (tested).
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Literal, TypeVar

import numpy as np
import torch
from torch import fx

from waferstream.compiler.capture.capture_errors import line_of_node
from waferstream.compiler.ops import RANDOM_OPS, op_name
from waferstream.compiler.storages import needed_for, overwritten, storages_of
from waferstream.core.errors import ApplianceCompilationError
from waferstream.core.program.kernel_source import KernelSource, kernel_source

_NORM = torch.ops.aten.native_batch_norm.default
_BACKWARD = torch.ops.aten.native_batch_norm_backward.default
_OWN_MEAN = 3  # among the outputs of the kernel below; the variance follows

Rounding = Literal["twice", "fused", "once"]

Kernel = TypeVar("Kernel", bound=Callable[..., Any])


def varying(graph: fx.Graph, buffers: Collection[fx.Node] = ()) -> set[fx.Node]:
    """Return the nodes whose values depend on an input, a parameter, chance or these buffers."""
    found = set(buffers)
    for node in graph.nodes:
        is_source = node.op == "placeholder" or op_name(node) in RANDOM_OPS
        if is_source or not found.isdisjoint(node.all_input_nodes):
            found.add(node)
    return found


class StateCut:
    """A captured step, cut into what depends on a written buffer (``update``) and the rest.

    Args:
        graph: The step; buffers are placeholders.
        written: Placeholders of the buffers that the step writes.
        finals: Their values after the step.
        results: The results of the step by position.
    """

    def __init__(
        self,
        graph: fx.Graph,
        written: Collection[fx.Node],
        finals: Collection[fx.Node],
        results: Mapping[int, fx.Node],
    ) -> None:
        self._graph = graph
        self._written = set(written)
        self._tainted: set[int] = set()  # storages of other values that the update overwrites
        self.update: dict[fx.Node, None] = {}
        for node in graph.nodes:
            if node.op == "call_function" and any(map(self._is_late, node.all_input_nodes)):
                self.update[node] = None
                target = overwritten(node)
                if target is not None and not self._is_late(target):
                    self._tainted |= storages_of([target]).keys()
        places = results.items()
        self.late = [(place, node) for place, node in places if self._is_late(node)]
        self.early = [(place, node) for place, node in places if not self._is_late(node)]
        self._returned = [*finals, *(node for _, node in self.late)]
        self._copy_overwritten()
        self._constant = self._constants()
        overwriting = [node for node in self.update if overwritten(node) is not None]
        nodes = dict.fromkeys(
            node for node in graph.nodes if node in self.update or node in self._constant
        )
        needed = needed_for([*self._returned, *overwriting], nodes)
        self._nodes = [node for node in nodes if node in needed]
        operands = [node for own in self._nodes for node in own.all_input_nodes]
        own = {*self._nodes, *graph.find_nodes(op="get_attr")}
        outside = [node for node in dict.fromkeys([*operands, *self._returned]) if node not in own]
        self._read = set(outside)
        self.contributions = [node for node in outside if not node.meta.get("is_state")]

    def refuse(self, gradients: Sequence[fx.Node], names: Sequence[str]) -> None:
        """Raise for a gradient or a random op that depends on a written buffer."""
        late = [node for node in gradients if self._is_late(node)]
        drawn = [node for node in self.update if op_name(node) in RANDOM_OPS]
        if not late and not drawn:
            return
        node = next(iter(self.update)) if late else drawn[0]
        what = "a gradient" if late else "a random number"
        raise ApplianceCompilationError(
            f"{what} depends on a buffer that the same step writes",
            code="state-in-gradient" if late else "state-in-random-op",
            where=line_of_node(node.meta.get("stack_trace")),
            value=", ".join(names),
            rule="micro-batches are computed side by side, so none can wait for the buffers that "
            "the one before has written",
            remedy="read the buffer in evaluation only, as nn.BatchNorm does, or make it a "
            "parameter that the optimizer trains",
        )

    def reads(self, node: fx.Node) -> bool:
        """Return whether the update reads a value from outside."""
        return node in self._read

    def kernel(self, module: fx.GraphModule, arguments: Sequence[fx.Node]) -> KernelSource:
        """Return the update of one micro-batch, from buffers and contributions."""
        inputs = [*arguments, *self.contributions]
        return kernel_source(module, self._nodes, inputs, self._returned)

    def erase(self) -> None:
        """Erase the update from the step, of which no output is left."""
        for node in reversed(self.update):
            self._graph.erase_node(node)

    def _is_late(self, node: fx.Node) -> bool:
        if node in self._written or node in self.update:
            return True
        return bool(self._tainted) and not self._tainted.isdisjoint(storages_of([node]))

    def _copy_overwritten(self) -> None:
        """Let the update read copies of values that the rest of the step overwrites."""
        rest = [node for node in self._graph.nodes if node not in self.update]
        changed = storages_of(filter(None, map(overwritten, rest))).keys()
        for reader in self.update:
            for operand in reader.all_input_nodes:
                is_own = operand in self.update or operand.op in {"get_attr", "placeholder"}
                if not is_own and storages_of([operand]).keys() & changed:
                    with self._graph.inserting_before(reader):
                        copy = self._graph.call_function(torch.ops.aten.clone.default, (operand,))
                    value = operand.meta["val"]
                    copy.meta = {**operand.meta, "val": value.new_empty(value.shape)}
                    reader.replace_input_with(operand, copy)

    def _constants(self) -> set[fx.Node]:
        """Return the ops of the rest that depend on nothing and that nothing overwrites."""
        rest = [node for node in self._graph.nodes if node not in self.update]
        changed = storages_of(filter(None, map(overwritten, self._graph.nodes))).keys()
        changing = varying(self._graph)
        return {
            node
            for node in rest
            if node.op == "call_function"
            and node not in changing
            and overwritten(node) is None
            and not storages_of([node]).keys() & changed
        }


def native_batch_norm(
    x: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    eps: float,
    dtype: torch.dtype,
    has_wide_variance: bool = False,
) -> tuple[torch.Tensor, ...]:
    """Run batch norm in training.

    Returns:
        Output, saved mean and inverse deviation as the op of torch; then mean and unbiased variance
        in ``dtype``, that of the running statistics, or a wide variance in fp64.
    """
    channels = x.shape[1]
    mean, variance = torch.zeros(2, channels, dtype=dtype).unbind()
    # With momentum 1 the running statistics become those of x, whatever they were.
    output = torch.ops.aten.native_batch_norm(x, weight, bias, mean, variance, True, 1.0, eps)
    if has_wide_variance:
        wide = x.transpose(0, 1).flatten(1).double()
        variance = (wide - mean.double()[:, None]).square().sum(1) / (wide.shape[1] - 1)
    return *output, mean, variance


native_batch_norm.waferstream_kind = "norm"  # type: ignore[attr-defined]


def _overwriting(kernel: Kernel) -> Kernel:
    """Mark a function that overwrites its first argument."""
    kernel.waferstream_overwrites = 0  # type: ignore[attr-defined]
    fx.has_side_effect(kernel)
    return kernel


@_overwriting
def update_running(
    running: torch.Tensor, own: torch.Tensor, momentum: float, rounding: Rounding
) -> torch.Tensor:
    """Take a statistic of a micro-batch into the running one, in place."""
    if rounding == "once":
        return running.copy_((1 - momentum) * running.double() + momentum * own.double())
    kept = running.mul_(float(np.float32(1) - np.float32(momentum)))
    if rounding == "fused":
        return kept.addcmul_(torch.full_like(own, momentum), own)
    return kept.add_(own * momentum)


def split_batch_norms(graph: fx.Graph) -> None:
    """Split every batch norm in training that has running statistics."""
    for node in list(graph.nodes):
        if node.target is _NORM and node.args[5] and node.args[3] is not None:
            _split(graph, node)
        elif node.target is _BACKWARD and node.args[7]:
            node.args = (*node.args[:3], None, None, *node.args[5:])  # read in evaluation only


def _split(graph: fx.Graph, node: fx.Node) -> None:
    x, weight, bias, running_mean, running_variance, _, momentum, eps = node.args
    statistics = [running_mean.meta["val"], running_variance.meta["val"]]  # type: ignore[union-attr]

    def insert(target: Callable[..., Any], args: tuple[Any, ...], value: Any) -> fx.Node:
        new = graph.call_function(target, args)
        new.meta = {**node.meta, "val": value}
        return new

    image: torch.Tensor = x.meta["val"]  # type: ignore[union-attr]
    is_half, is_dense = image.dtype.itemsize <= 2, _is_dense(image)
    roundings: tuple[Rounding, Rounding] = ("twice", "twice" if is_half else "fused")
    if not is_dense:
        roundings = ("once", "once")
    is_wide = not is_dense and not is_half
    with graph.inserting_before(node):
        own = [tensor.new_empty(tensor.shape) for tensor in statistics]
        if is_wide:
            own[1] = own[1].double()
        norm = insert(
            native_batch_norm,
            (x, weight, bias, eps, statistics[0].dtype, is_wide),
            (*node.meta["val"], *own),
        )
        for place, running in enumerate((running_mean, running_variance)):
            part = insert(operator.getitem, (norm, _OWN_MEAN + place), own[place])
            insert(update_running, (running, part, momentum, roundings[place]), statistics[place])
    node.replace_all_uses_with(norm)
    graph.erase_node(node)


def _is_dense(x: torch.Tensor) -> bool:
    """Return whether an input is contiguous in either memory format."""
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    other = formats.get(x.ndim, torch.contiguous_format)
    return x.is_contiguous() or x.is_contiguous(memory_format=other)
