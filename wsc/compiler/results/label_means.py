"""Find the means over labels of a captured step, and make their weights inputs of the program.

A term of a loss is a mean over labels if it divides by a number that the inputs alone determine:

    nll_loss_forward(scores, target, weight, mean, ignore_index)     cross_entropy, nll_loss
    div(x, sum(mask))          also with a cast of the sum, or a lower bound of it

Constant factors, casts and views around a term do not matter, and terms may be added. What counts
the labels becomes a kernel of its own, which the input worker runs
(wsc.core.program.label_means). The ops of the step stay as they are: only the constant at which
the backward pass starts becomes an input.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx

from wsc.compiler.capture.captured import Captured
from wsc.compiler.ops import RANDOM_OPS, op_name
from wsc.compiler.passes.inputs import fill_from_input
from wsc.compiler.storages import needed_for, overwritten, tensors_of
from wsc.core.program.kernel_source import KernelSource, kernel_source
from wsc.core.program.label_means import SEED_INPUT, LabelMean

_MEAN = 1  # aten's number of reduction="mean"
_NLL = {"nll_loss_forward", "nll_loss2d_forward"}
_UNCHANGED = frozenset(
    {"detach", "alias", "clone", "_to_copy", "view", "_unsafe_view", "reshape"}
    | {"squeeze", "unsqueeze", "neg"}
)
_BOUNDED = _UNCHANGED | {"clamp", "clamp_min", "maximum", "add"}
_ADDED = frozenset({"add", "sub", "rsub"})
_aten = torch.ops.aten


@dataclass(frozen=True)
class Terms:
    """The terms of a scalar: what counts the labels of each, and whether there are others."""

    counts: frozenset[fx.Node] = field(default_factory=frozenset)
    has_others: bool = False

    def __or__(self, other: Terms) -> Terms:
        return Terms(self.counts | other.counts, self.has_others or other.has_others)


def weigh_label_means(captured: Captured) -> tuple[tuple[LabelMean, ...], KernelSource | None]:
    """Return the means over labels of a step, and the kernel that counts their labels.

    The kernel takes the inputs of a micro-batch and returns one scalar for each count; it is None
    where the step has no mean over labels. The graph of the step then stays as it is.
    """
    finder = _Finder(captured)
    seeds = [node for node in captured.graph.nodes if node.meta.get("seed")]
    loss = _union(finder.terms(seed.args[0]) for seed in seeds)
    results = {
        position: _scalar_terms(finder, node)
        for position, node in captured.results.items()
        if position < captured.num_results
    }
    groups: dict[Terms, list[int]] = {loss: []} if loss.counts else {}
    for position, terms in results.items():
        if terms.counts:
            groups.setdefault(terms, []).append(position)
    if loss.counts:
        fill_from_input(captured, "seed", SEED_INPUT)
    counts = list(dict.fromkeys(count for terms in groups for count in terms.counts))
    counts.sort(key=list(captured.graph.nodes).index)
    kernel = finder.kernel(counts) if counts else None
    finder.erase_counters()
    means = tuple(
        LabelMean(
            counts=tuple(sorted(map(counts.index, terms.counts))),
            has_other_terms=terms.has_others,
            results=tuple(positions),
            is_loss=terms == loss,
        )
        for terms, positions in groups.items()
    )
    return means, kernel


def _scalar_terms(finder: _Finder, node: fx.Node) -> Terms:
    """Return the terms of a result, none of a tensor: its parts are combined without weights."""
    return finder.terms(node) if node.meta["val"].ndim == 0 else Terms()


def _union(terms: Iterator[Terms]) -> Terms:
    found = Terms()
    for each in terms:
        found |= each
    return found


class _Finder:
    """Finds the terms of scalars of one graph."""

    def __init__(self, captured: Captured) -> None:
        self._captured = captured
        batch = captured.batch
        self._from_batch: dict[fx.Node, None] = dict.fromkeys(batch)  # in graph order
        self._constant: set[fx.Node] = set()
        self._counters: dict[tuple[Any, ...], fx.Node] = {}
        self._added: list[fx.Node] = []
        for node in captured.graph.nodes:
            if node.op == "get_attr":
                self._constant.add(node)
            elif node.op == "call_function" and op_name(node) not in RANDOM_OPS:
                operands = set(node.all_input_nodes)
                if operands <= self._constant:
                    self._constant.add(node)
                elif operands <= self._constant | self._from_batch.keys():
                    self._from_batch[node] = None

    def terms(self, node: Any) -> Terms:
        """Return the terms of a scalar."""
        if not isinstance(node, fx.Node) or node in self._constant:
            return Terms()
        name, args = op_name(node), node.args
        if name in _UNCHANGED:
            return self.terms(args[0])
        if name in _ADDED:
            return self.terms(args[0]) | self.terms(args[1])
        if name == "mul":
            factor = [arg for arg in args if self._varies(arg)]
            return self.terms(factor[0]) if len(factor) == 1 else Terms(has_others=True)
        if name == "div" and not self._varies(args[1]):
            return self.terms(args[0])
        count = self._count_of(node, name)
        return Terms(has_others=True) if count is None else Terms(frozenset({count}))

    def kernel(self, counts: Sequence[fx.Node]) -> KernelSource:
        """Return the kernel from the inputs of a micro-batch to these counts."""
        nodes = [node for node in self._from_batch if node.op == "call_function"]
        nodes += [node for node in self._constant if node.op == "call_function"]
        order = {node: place for place, node in enumerate(self._captured.graph.nodes)}
        nodes.sort(key=order.__getitem__)
        # An op that overwrites may change what a count reads under another name.
        wanted = [*counts, *(node for node in nodes if overwritten(node) is not None)]
        found = needed_for(wanted, nodes)
        kept = [node for node in nodes if node in found]
        return kernel_source(self._captured.module, kept, list(self._captured.batch), counts)

    def erase_counters(self) -> None:
        """Erase the nodes that only the kernel needs."""
        for node in reversed(self._added):
            self._captured.graph.erase_node(node)

    def _varies(self, operand: Any) -> bool:
        return isinstance(operand, fx.Node) and operand not in self._constant

    def _count_of(self, node: fx.Node, name: str) -> fx.Node | None:
        """Return what counts the labels of a mean, None if the node is no mean over labels."""
        if name == "div":
            return self._divisor(node.args[1])
        is_first = node.target is operator.getitem and node.args[1] == 0
        made: Any = node.args[0] if is_first else None
        if not is_first or op_name(made) not in _NLL:
            return None
        _, target, weight, reduction, ignored = made.args
        known = target in self._from_batch and weight not in self._from_batch
        if reduction != _MEAN or not known or (weight is not None and self._varies(weight)):
            return None
        return self._counter(target, weight, ignored)

    def _divisor(self, node: Any) -> fx.Node | None:
        """Return the sum over the inputs that a divisor is, without its casts and bounds."""
        while node in self._from_batch and op_name(node) in _BOUNDED:
            varying = [arg for arg in node.args if self._varies(arg)]
            if len(varying) != 1:
                return None
            (node,) = varying
        is_sum = node in self._from_batch and op_name(node) in {"sum", "count_nonzero"}
        return node if is_sum and all(t.numel() == 1 for t in tensors_of(node)) else None

    def _counter(self, target: fx.Node, weight: fx.Node | None, ignored: int) -> fx.Node:
        """Return a new node for the number of labels, or the sum of their class weights."""
        key = (target, weight, ignored)
        if key not in self._counters:
            graph = self._captured.graph
            place = max((target, weight or target), key=list(graph.nodes).index)
            with graph.inserting_after(place):
                counted = self._call(_aten.ne.Scalar, target, ignored)
            if weight is not None:
                label = self._after(counted, _aten.clamp_min.default, target, 0)
                own = self._after(label, _aten.index.Tensor, weight, [label])
                counted = self._after(own, _aten.mul.Tensor, own, counted)
            self._counters[key] = self._after(counted, _aten.sum.default, counted)
        return self._counters[key]

    def _after(self, place: fx.Node, target: Callable[..., Any], *args: Any) -> fx.Node:
        with self._captured.graph.inserting_after(place):
            return self._call(target, *args)

    def _call(self, target: Callable[..., Any], *args: Any) -> fx.Node:
        node = self._captured.graph.call_function(target, args)
        self._added.append(node)
        self._from_batch[node] = None
        return node
