"""Nothing derived from a weight leaves a segment: casts and transposes are redone where used.

Autograd saves, say, the transposed or the cast weight of the forward pass for the backward pass.
On the wafer the weight streams again instead, so every op whose operands are weights alone is
cloned into each segment that reads it, right before its first reader there. Cloned pure ops give
the same bits.
"""

from __future__ import annotations

import operator
from typing import Any

from torch import fx

from wsc.compiler.capture import Captured


def rematerialize_weights(captured: Captured) -> None:
    """Give each segment its own copy of the weight-only ops it reads."""
    graph = captured.graph
    derived = weight_only(captured)
    clones: dict[tuple[fx.Node, object], fx.Node] = {}

    def clone_for(node: fx.Node, reader: fx.Node) -> fx.Node:
        if node not in derived:
            return node
        key = (node, reader.meta["segment"])
        if key not in clones:
            operands = {op: clone_for(op, reader) for op in node.all_input_nodes}
            with graph.inserting_before(reader):
                clones[key] = graph.node_copy(node, operands.__getitem__)
            clones[key].meta["segment"] = reader.meta["segment"]
        return clones[key]

    for reader in list(graph.nodes):
        if reader.op == "call_function" and reader not in derived:
            for operand in reader.all_input_nodes:
                reader.replace_input_with(operand, clone_for(operand, reader))
    graph.eliminate_dead_code()


def weight_only(captured: Captured) -> set[fx.Node]:
    """Pure ops whose tensor operands are weights or weight-only, save those that are outputs."""
    weights = set(captured.weights)
    outputs = {*captured.results, *captured.gradients.values()}
    found: set[fx.Node] = set()
    for node in captured.graph.nodes:
        if node.op != "call_function" or node in outputs or not _is_pure(node.target):
            continue
        operands = node.all_input_nodes
        if operands and all(op in weights or op in found for op in operands):
            found.add(node)
    return found


def _is_pure(target: Any) -> bool:
    if target is operator.getitem:
        return True
    schema = getattr(target, "_schema", None)
    return schema is not None and not schema.is_mutable
