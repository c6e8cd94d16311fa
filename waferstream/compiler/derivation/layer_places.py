"""The layers of a captured step node by node: which nodes of equal layers correspond."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from torch import fx

from waferstream.compiler.capture.captured import Captured
from waferstream.compiler.derivation.depth import CAPTURED_LAYERS, MIDDLE, Stack
from waferstream.compiler.passes.layers import layers_of


class UnequalLayersError(Exception):
    """The nodes of the layers do not correspond, so that none can be copied."""


@dataclass(frozen=True)
class LayerPlaces:
    """The layer of each node of a step with CAPTURED_LAYERS layers, and its place in the layer."""

    runs: tuple[tuple[int | None, tuple[fx.Node, ...]], ...]  # layer number and adjacent nodes
    number: dict[fx.Node, int | None]
    middle: dict[fx.Node, fx.Node]  # the node of the middle layer for one of a neighbour
    descending: frozenset[fx.Node]  # of the middle layer, where later layers come first

    @classmethod
    def of(cls, captured: Captured, stack: Stack) -> LayerPlaces:
        """Return the places of a graph; UnequalLayersError if the neighbours differ."""
        number = _numbers(captured, stack)
        nodes = list(captured.graph.nodes)
        runs = tuple((key, tuple(run)) for key, run in groupby(nodes, number.__getitem__))
        of_layer = {
            each: [run for key, run in runs if key == each] for each in range(CAPTURED_LAYERS)
        }
        middle: dict[fx.Node, fx.Node] = {}
        for each in (MIDDLE - 1, MIDDLE + 1):
            for run, twin in _paired(of_layer[each], of_layer[MIDDLE]):
                for node, other in _paired(run, twin):
                    middle[node] = other
        place = {node: index for index, node in enumerate(nodes)}
        descending = {
            node
            for run, before in zip(of_layer[MIDDLE], of_layer[MIDDLE - 1], strict=True)
            if place[before[0]] > place[run[0]]
            for node in run
        }
        return cls(runs, number, middle, frozenset(descending))


def _paired(some: Any, others: Any) -> Iterator[tuple[Any, Any]]:
    if len(some) != len(others):
        raise UnequalLayersError
    return zip(some, others, strict=True)


def _numbers(captured: Captured, stack: Stack) -> dict[fx.Node, int | None]:
    """Return the number of the layer that each node belongs to, None outside of the stack.

    A node without a layer belongs to that of the node before it, the cast of a weight to that of
    the weight.
    """
    known = layers_of(captured)
    found = {node: stack.number(name) for node, name in captured.weights.items()}
    running: int | None = None
    for node in captured.graph.nodes:
        if node in found:
            continue
        operands = [found[operand] for operand in node.all_input_nodes]
        if node.op in {"placeholder", "output"}:
            found[node] = None
        elif node in known:
            running = found[node] = stack.number(known[node])
        elif not node.meta["backward"] and len(operands) == 1 and operands[0] is not None:
            found[node] = operands[0]
        else:
            found[node] = running
    return found
