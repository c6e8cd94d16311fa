"""Find the means over labels of a captured step, and what counts their labels.

A mean over labels divides by a number that the inputs alone determine, and sums nothing else:

    nll_loss_forward(scores, target, weight, mean, ignore_index)     cross_entropy, nll_loss
    div(sum(x * mask), sum(mask))          also with casts, or a lower bound of at most 1
    div(sum(masked_fill(x, target == i, 0)), sum(target != i))       label smoothing

A micro-batch without labels has none of the batch's loss, whatever it divides by. What counts the
labels becomes a kernel of its own, which the input worker runs
(waferstream.core.program.label_means).
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx

from waferstream.compiler.capture.captured import Captured
from waferstream.compiler.ops import RANDOM_OPS, op_kind, op_name
from waferstream.compiler.results.batch_forms import LabelCount
from waferstream.compiler.storages import needed_for, overwritten, storages_of
from waferstream.core.program.kernel_source import KernelSource, kernel_source

NLL = frozenset({"nll_loss_forward", "nll_loss2d_forward"})
NONE, MEAN, SUM = 0, 1, 2
"""Aten's numbers of reductions."""

_CAST = frozenset({"detach", "alias", "clone", "_to_copy", "contiguous"})
_NEGATED = {"eq": "ne", "ne": "eq"}
_aten = torch.ops.aten

Mask = tuple[object, ...]


class LabelCounts:
    """Tells means over labels of one graph from other values.

    Args:
        captured: The step.
        quotients: Quotients that count as such, although they are means over labels.
    """

    def __init__(self, captured: Captured, quotients: Sequence[fx.Node] = ()) -> None:
        self._captured = captured
        self._quotients = set(quotients)
        self.of_inputs = inputs_only(captured)
        written = filter(None, map(overwritten, captured.graph.nodes))
        self._written = storages_of(written).keys()

    def mean(self, node: fx.Node) -> LabelCount | None:
        """Return the divisor of a node's mean over labels, None if it is no such mean."""
        if node in self._quotients:
            return None
        if op_name(node).rstrip("_") == "div" and isinstance(node.args[1], fx.Node):
            return self._of_quotient(node)
        made = nll_of(node)
        if made is None or made.args[3] != MEAN or node.args[1] != 0:
            return None
        _, target, weight, _, ignored = made.args
        if {target, weight} - {None} <= self.of_inputs.keys():
            return LabelCount(_viewed(target), weight, ignored)  # type: ignore[arg-type]
        return None

    def kernel(self, counts: Sequence[LabelCount]) -> KernelSource:
        """Return the kernel from the inputs of a micro-batch to these counts."""
        added: list[fx.Node] = []
        graph = self._captured.graph
        with graph.inserting_before(graph.find_nodes(op="output")[0]):
            wanted = [count.mask or counter(graph, count, added) for count in counts]
        nodes = [*self.of_inputs, *added]
        kernel = input_kernel(self._captured, nodes, wanted)
        for node in reversed(added):
            graph.erase_node(node)
        return kernel

    def _of_quotient(self, node: fx.Node) -> LabelCount | None:
        divisor, bound = _unbounded(node.args[1])
        if divisor not in self.of_inputs or op_name(divisor) not in {"sum", "count_nonzero"}:
            return None
        if node.args[0].meta["val"].ndim or divisor.meta["val"].numel() != 1:  # type: ignore[union-attr]
            return None
        source = _source(divisor.args[0])
        if storages_of([source, divisor.args[0]]).keys() & self._written:
            return None
        is_whole = not source.meta["val"].dtype.is_floating_point
        mask = _mask(source)
        if (bound > 1 or (bound > 0 and not is_whole)) or mask not in _masks(node.args[0]):
            return None
        if mask[0] == "ne":
            return LabelCount(_viewed(mask[1]), None, mask[2])  # type: ignore[arg-type]
        return LabelCount(mask=divisor)


def inputs_only(captured: Captured) -> dict[fx.Node, None]:
    """Return the values of the forward pass that follow from inputs and constants, in order."""
    found: dict[fx.Node, None] = {}
    written: set[int] = set()  # storages into which other values are written
    while True:
        found = dict.fromkeys(captured.batch)
        for node in captured.graph.nodes:
            is_known = all(operand in found for operand in node.all_input_nodes)
            if is_known and _is_fixed(node) and written.isdisjoint(storages_of([node])):
                found[node] = None
        others = [node for node in captured.graph.nodes if node not in found]
        into = {target for target in map(overwritten, others) if target in found}
        if not into:
            return found
        written |= storages_of(into).keys()


def _is_fixed(node: fx.Node) -> bool:
    """Return whether a node is a constant, or an op of the forward pass that draws nothing."""
    is_op = node.op == "call_function" and not node.meta["backward"]
    return node.op == "get_attr" or (is_op and op_name(node) not in RANDOM_OPS)


def input_kernel(
    captured: Captured, nodes: Sequence[fx.Node], wanted: Sequence[fx.Node]
) -> KernelSource:
    """Return the kernel from the inputs of a step to values that follow from them alone."""
    calls = [node for node in nodes if node.op == "call_function"]
    # An op that overwrites may change what a value reads under another name.
    written = [node for node in calls if overwritten(node) is not None]
    needed = needed_for([*wanted, *written], calls)
    kept = [node for node in calls if node in needed]
    return kernel_source(captured.module, kept, list(captured.batch), wanted)


def nll_of(node: fx.Node) -> fx.Node | None:
    """Return the op whose loss a node picks, None if it picks none."""
    made: Any = node.args[0] if node.target is operator.getitem else None
    return made if made is not None and op_name(made) in NLL else None


def counter(graph: fx.Graph, count: LabelCount, added: list[fx.Node]) -> fx.Node:
    """Insert the ops that count labels, or add up the weights of their classes.

    Args:
        graph: The step, at the place where they are inserted.
        count: What is counted.
        added: The list to which new nodes are appended.
    """

    def call(target: Callable[..., Any], *args: Any) -> fx.Node:
        added.append(graph.call_function(target, args))
        return added[-1]

    counted = call(_aten.ne.Scalar, count.target, count.ignored)
    if count.weight is not None:
        label = call(_aten.clamp_min.default, count.target, 0)
        own = call(_aten.index.Tensor, count.weight, [label])
        counted = call(_aten.mul.Tensor, own, counted)
    return call(_aten.sum.default, counted)


def _unbounded(node: Any) -> tuple[Any, float]:
    """Return a divisor without its casts and lower bound, and that bound."""
    bound = 0.0
    while isinstance(node, fx.Node) and (op_name(node) in _CAST | {"clamp", "clamp_min"}):
        if op_name(node) not in _CAST:
            given = node.args[1] if len(node.args) > 1 else node.kwargs.get("min")
            if len(node.args) > 2 or node.kwargs.get("max") is not None or not _is_number(given):
                break
            bound = max(bound, float(given))  # type: ignore[arg-type]
        node = node.args[0]
    return node, bound


def _is_number(value: object) -> bool:
    return isinstance(value, int | float)


def _source(node: Any) -> Any:
    """Return the node whose values a node has, in another shape or type."""
    while (viewed := _viewed(node)) is not node or op_name(node) in _CAST:
        node = node.args[0] if viewed is node else viewed
    return node


def _viewed(node: Any) -> Any:
    """Return the node all of whose elements a node shows."""
    while node.op == "call_function" and op_kind(node) == "view" and _shows_all(node):
        node = node.args[0]
    return node


def _shows_all(node: fx.Node) -> bool:
    value, source = node.meta["val"], node.all_input_nodes[0].meta["val"]
    tensors = isinstance(value, torch.Tensor) and isinstance(source, torch.Tensor)
    return tensors and value.numel() == source.numel()


def _mask(node: Any) -> Mask:
    """Return a mask in a form that is equal for equal masks."""
    node = _source(node)
    name = op_name(node) if isinstance(node, fx.Node) else ""
    if name in {"bitwise_not", "logical_not"}:
        return _negated(_mask(node.args[0]))
    if name in _NEGATED and _is_number(node.args[1]):
        return name, _viewed(node.args[0]), node.args[1]
    return "is", node


def _negated(mask: Mask) -> Mask:
    if mask[0] == "not":
        return mask[1:]
    name = _NEGATED.get(str(mask[0]))
    return (name, *mask[1:]) if name else ("not", *mask)


def _masks(node: Any) -> list[Mask]:
    """Return the masks with one of which each element of a sum is multiplied."""
    while isinstance(node, fx.Node) and op_name(node).rstrip("_") in {"neg", "sum", *_CAST}:
        node = node.args[0]
    node = _source(node)
    name = op_name(node).rstrip("_") if isinstance(node, fx.Node) else ""
    if name == "mul":
        return [_mask(operand) for operand in node.all_input_nodes]
    if name == "masked_fill" and node.args[2] == 0:
        return [_negated(_mask(node.args[1]))]
    return []
