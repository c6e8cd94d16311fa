"""Pair the ops of a micro-batch with those of the whole batch.

The same Python records a step at both sizes, so its ops follow in the same order. Where a
micro-batch has one sample, torch makes views of an extent of one where it copies larger ones, and
it splits ``linear`` in another way. So ops that keep values may be absent on one side, and a
product that adds a bias stands for a product and a sum.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from difflib import SequenceMatcher
from functools import cached_property
from itertools import zip_longest
from math import isnan

import torch
from torch import fx

from waferstream.compiler.capture.capture_errors import line_of_node
from waferstream.compiler.capture.captured import Captured
from waferstream.compiler.ops import op_kind, op_name
from waferstream.compiler.storages import tensors_of
from waferstream.core.errors import ApplianceCompilationError
from waferstream.core.program.micro_batches import SETTING

_KEEPS_VALUES = frozenset({"clone", "contiguous", "copy"})
_IN_PARTS = {"addmm": ("mm", "add"), "baddbmm": ("bmm", "add")}


Again = Callable[[], Captured]


class TwoSizes:
    """A step at the size of a micro-batch and at that of the whole batch.

    Args:
        part: The step of a micro-batch.
        whole: The same step for the whole batch.
        again: Records the step of a micro-batch once more; None if both are of one recording.

    Raises:
        ApplianceCompilationError: The two run different ops.
    """

    def __init__(self, part: Captured, whole: Captured, again: Again | None = None) -> None:
        self.part = part
        self.whole = whole
        self._again = again
        self._recorded = {node: repr(_numbers(node)) for node in part.graph.nodes}
        self.rows = part.inputs[0].shape[0]
        self.rows_of_batch = whole.inputs[0].shape[0]
        self._pair = _paired(part.graph, whole.graph)

    def add_backward(self, nodes: Sequence[fx.Node], of_whole: Sequence[fx.Node]) -> None:
        """Pair nodes of backward passes, which are in order, and the gradients that they read.

        Raises:
            ApplianceCompilationError: They are other ops.
        """
        found = _aligned(nodes, of_whole)
        self._pair |= found
        for node, other in found.items():
            for a, b in zip(node.all_input_nodes, other.all_input_nodes, strict=False):
                self._pair.setdefault(a, b)

    def add(self, node: fx.Node, of_whole: fx.Node) -> None:
        """Note a pair of new nodes."""
        self._pair[node] = of_whole

    def of_whole(self, node: fx.Node) -> fx.Node | None:
        """Return the node of the whole batch, None if it has none: a view, or a copy."""
        return self._pair.get(node)

    def samples(self, node: fx.Node) -> tuple[int, ...]:
        """Return the dimensions of a value that grow with the samples.

        One without a pair is a view, or a copy: it has as many as its operand.
        """
        other = self.of_whole(node)
        if other is None:
            return self.samples(node.all_input_nodes[0])[:1] if node.all_input_nodes else ()
        here, there = (tensors_of(each) for each in (node, other))
        if not here or not there or here[0].ndim != there[0].ndim:
            return ()
        extents = zip(here[0].shape, there[0].shape, strict=True)
        return tuple(dim for dim, (a, b) in enumerate(extents) if a != b)

    def is_equal_constant(self, node: fx.Node) -> bool:
        """Return whether a constant has the same value, or equal rows, at both sizes."""
        other = self.of_whole(node)
        here = getattr(self.part.module, str(node.target))
        there = None if other is None else getattr(self.whole.module, str(other.target))
        if not isinstance(here, torch.Tensor) or not isinstance(there, torch.Tensor):
            return there is not None
        if here is there or here.shape == there.shape:
            return here is there or torch.equal(here, there)
        same_rows = here.ndim and here.shape[1:] == there.shape[1:]
        return bool(same_rows and all((each == here[:1]).all() for each in (here, there)))

    def is_in_proportion(self, node: fx.Node) -> bool:
        """Return whether each dimension that grows has as many rows for each sample."""
        other = self.of_whole(node)
        if other is None or not tensors_of(node):  # a truth about memory, of forward gradients
            return True
        here, there = tensors_of(node)[0].shape, tensors_of(other)[0].shape
        grows = [
            here[dim] * self.rows_of_batch == there[dim] * self.rows for dim in self.samples(node)
        ]
        return all(grows)

    def growth(self, node: fx.Node) -> float:
        """Return the elements of a value of a micro-batch over those of the whole batch."""
        other = self.of_whole(node)
        if other is None:
            return self.growth(node.all_input_nodes[0]) if node.all_input_nodes else 1.0
        return _elements(node) / _elements(other)

    def numbers(self, node: fx.Node) -> tuple[tuple[float, float], ...]:
        """Return the numbers among the arguments of an op that differ, at both sizes.

        Raises:
            ApplianceCompilationError: One is another number each time that Python runs.
        """
        other = self.of_whole(node)
        if other is None:
            return ()
        pairs = zip(_numbers(node), _numbers(other), strict=False)
        found = tuple((a, b) for a, b in pairs if a != b and not isnan(a))
        if found and node in self._changing:
            raise _changes_by_itself(node)
        return found

    @cached_property
    def _changing(self) -> set[fx.Node]:
        """The ops whose numbers are others in another run of Python at the same size."""
        if self._again is None:
            return set()
        pairs = zip(self._recorded.items(), self._again().graph.nodes, strict=False)
        return {node for (node, own), other in pairs if own != repr(_numbers(other))}


def _numbers(node: fx.Node) -> list[float]:
    """Return the numbers among the arguments of an op, outside of lists."""
    given = (*node.args, *node.kwargs.values())
    return [float(value) for value in given if isinstance(value, int | float)]


def _elements(node: fx.Node) -> int:
    return max(sum(tensor.numel() for tensor in tensors_of(node)[:1]), 1)


def _paired(part: fx.Graph, whole: fx.Graph) -> dict[fx.Node, fx.Node]:
    """Return the node of the whole batch of each node of a micro-batch."""
    both = [_by_direction(graph) for graph in (part, whole)]
    pairs: dict[fx.Node, fx.Node] = {}
    for ours, theirs in zip(*both, strict=True):
        if list(map(op_name, ours)) == list(map(op_name, theirs)):
            pairs |= zip(ours, theirs, strict=True)
        else:
            pairs |= _aligned(ours, theirs)
    return pairs


def _by_direction(graph: fx.Graph) -> tuple[list[fx.Node], list[fx.Node]]:
    """Return inputs, constants and ops of the forward pass."""
    given = [node for node in graph.nodes if node.op in {"placeholder", "get_attr"}]
    calls = [node for node in graph.nodes if node.op == "call_function"]
    return given, [node for node in calls if not node.meta["backward"]]


def _aligned(ours: Sequence[fx.Node], theirs: Sequence[fx.Node]) -> dict[fx.Node, fx.Node]:
    """Pair the ops that change values in their order, and the others in between where they match.

    Raises:
        ApplianceCompilationError: The ops that change values differ.
    """
    (parts, runs), (other_parts, other_runs) = _split(ours), _split(theirs)
    pairs: dict[fx.Node, fx.Node] = {}
    for a, b in zip_longest(parts, other_parts):
        if a is None or b is None or a[0] != b[0]:
            raise _other_ops(a or b)
        pairs.setdefault(a[1], b[1])
    for run, other in zip(runs, other_runs, strict=True):
        names = [list(map(op_name, each)) for each in (run, other)]
        for a, b, size in SequenceMatcher(
            a=names[0], b=names[1], autojunk=False
        ).get_matching_blocks():
            pairs |= zip(run[a : a + size], other[b : b + size], strict=True)
    return pairs


_Part = tuple[str, fx.Node]


def _split(nodes: Sequence[fx.Node]) -> tuple[list[_Part], list[list[fx.Node]]]:
    """Return the ops that change values, in parts that have names, and the runs around them."""
    parts: list[_Part] = []
    runs: list[list[fx.Node]] = [[]]
    for node in nodes:
        if op_kind(node) == "view" or op_name(node) in _KEEPS_VALUES:
            runs[-1].append(node)
            continue
        for name in _IN_PARTS.get(op_name(node), (op_name(node),)):
            parts.append((name, node))
            runs.append([])
    return parts, runs


def _changes_by_itself(node: fx.Node) -> ApplianceCompilationError:
    return ApplianceCompilationError(
        "a number of the step is another one each time that its Python runs",
        code="number-changes-by-itself",
        where=line_of_node(node.meta.get("stack_trace")),
        value=", ".join(map(str, _numbers(node))),
        rule="Python runs for a micro-batch and for the whole batch, whose numbers tell sums over "
        "the batch from means",
        remedy="let the loader yield it as a tensor of the batch, or let the loop set an attribute "
        "of the model",
    )


def _other_ops(part: _Part | None) -> ApplianceCompilationError:
    line = line_of_node(part[1].meta.get("stack_trace")) if part else None
    return ApplianceCompilationError(
        "the ops of a step depend on the number of samples",
        code="ops-depend-on-batch-size",
        where=line,
        value=part and part[0],
        rule="what a loss reduces over the batch is found by comparing the step of a micro-batch "
        "with that of the whole batch",
        remedy="let no Python code of the step branch on the number of samples, or set "
        f"{SETTING} to the batch size",
    )
