"""A fused kernel in full: regions of loops, and between them what stays as it is."""

from __future__ import annotations

import ast
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from waferstream.compiler.fusion.inductor import Loop, Region, region_of
from waferstream.compiler.fusion.regions import (
    Normalized,
    NotFusibleError,
    levels_of,
    traced,
)

MOST_REGIONS = 8
"""A kernel with more is left as it is: most of its values would go through memory anyway."""


@dataclass(frozen=True)
class Written:
    """A fused kernel as text, before its loops are compiled."""

    text: str
    loops: tuple[Loop, ...]


def written(kernel: Normalized, operands: Sequence[Any]) -> Written:
    """Return the fused text of a kernel for operands like these, constants last.

    Raises:
        NotFusibleError: The kernel stays as it is.
    """
    graph = traced(kernel)
    levels = levels_of(graph, [not isinstance(each, torch.Tensor) for each in operands])
    values = _values(graph, operands)
    numbers = sorted({level for level in levels.values() if level % 2})
    if not 0 < len(numbers) <= MOST_REGIONS:
        raise NotFusibleError(f"{len(numbers)} groups of ops that can be fused")
    regions: dict[int, Region] = {}
    crossing: dict[int, tuple[list[fx.Node], list[fx.Node]]] = {}
    for level in numbers:
        inputs, outputs = crossing[level] = _crossing(levels, level)
        module = _module(graph, levels, level, inputs, outputs)
        tensors = [values[node] for node in inputs]
        regions[level] = region_of(module, tensors, f"region_{level}")
    loops = tuple(loop for region in regions.values() for loop in region.loops)
    if not loops:
        raise NotFusibleError("there is nothing to fuse")
    functions = [ast.unparse(ast.fix_missing_locations(r.function)) for r in regions.values()]
    main = _forward(graph, levels, crossing)
    return Written("\n\n\n".join([*functions, main]), loops)


def _values(graph: fx.Graph, operands: Sequence[Any]) -> Mapping[fx.Node, Any]:
    """Return the values of all nodes, computed on the operands."""
    found: dict[fx.Node, Any] = {}

    class Noting(fx.Interpreter):
        def run_node(self, n: fx.Node) -> Any:
            found[n] = super().run_node(n)
            return found[n]

    with torch.no_grad():
        Noting(fx.GraphModule({}, graph), garbage_collect_values=False).run(*operands)
    return found


def _crossing(levels: Mapping[fx.Node, int], level: int) -> tuple[list[fx.Node], list[fx.Node]]:
    """Return the values that a level reads from outside, and those that are read outside of it."""
    nodes = [node for node, of_node in levels.items() if of_node == level]
    inside = set(nodes)
    reads = dict.fromkeys(each for node in nodes for each in node.all_input_nodes)
    inputs = [each for each in reads if each not in inside]
    outputs = [node for node in nodes if any(user not in inside for user in node.users)]
    return inputs, outputs


def _module(
    graph: fx.Graph,
    levels: Mapping[fx.Node, int],
    level: int,
    inputs: Sequence[fx.Node],
    outputs: Sequence[fx.Node],
) -> fx.GraphModule:
    """Return the graph of one level."""
    part = fx.Graph()
    copies = {node: part.placeholder(f"arg{index}") for index, node in enumerate(inputs)}
    for node in graph.nodes:
        if levels.get(node) == level:
            copies[node] = part.node_copy(node, copies.__getitem__)
    part.output(tuple(copies[node] for node in outputs))
    return fx.GraphModule({}, part)


def _forward(
    graph: fx.Graph,
    levels: Mapping[fx.Node, int],
    crossing: Mapping[int, tuple[list[fx.Node], list[fx.Node]]],
) -> str:
    """Return the text of the function that calls the regions, and all that is in none."""
    whole = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    for node in graph.find_nodes(op="placeholder"):
        copies[node] = whole.node_copy(node)
    for level in range(max(levels.values()) + 1):
        if level not in crossing:
            for node in graph.nodes:
                if levels.get(node) == level:
                    copies[node] = whole.node_copy(node, copies.__getitem__)
            continue
        inputs, outputs = crossing[level]
        arguments = tuple(copies[node] for node in inputs)
        call = whole.create_node("call_function", _Region(level), arguments, name=f"values_{level}")
        for index, node in enumerate(outputs):
            copies[node] = whole.call_function(operator.getitem, (call, index))
    (output,) = graph.find_nodes(op="output")
    whole.node_copy(output, copies.__getitem__)
    module = _Region.__module__.replace(".", "_")  # as torch.fx writes it
    return whole.python_code("self").src.strip().replace(f"{module}_region_", "region_")


class _Region:
    """Stands for the function of a region in a graph; torch.fx writes its name."""

    def __init__(self, level: int) -> None:
        self.__name__ = self.__qualname__ = f"region_{level}"

    def __call__(self, *_: Any) -> Any:
        raise NotImplementedError
