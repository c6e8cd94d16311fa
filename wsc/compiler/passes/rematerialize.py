"""Nothing derived from a weight leaves a segment: casts and transposes are redone where used.

Autograd saves, say, the transposed or the cast weight of the forward pass for the backward pass.
On the wafer the weight streams again instead, so every op that weights alone decide, and constants
such as a mask, is cloned into each segment that reads it, right before its first reader there.
Cloned pure ops give the same bits. What another op writes over is left alone: its clone would miss
the writing.
"""

from __future__ import annotations

import operator
from typing import Any

from torch import fx

from wsc.compiler.capture import Captured
from wsc.compiler.storages import overwritten, storages_of


def rematerialize_weights(captured: Captured) -> None:
    """Give each segment its own copy of the weight-only ops it reads."""
    graph = captured.graph
    derived, constant = _derived_and_constant(captured)
    clones: dict[tuple[fx.Node, object], fx.Node] = {}

    def clone_for(node: fx.Node, reader: fx.Node) -> fx.Node:
        if node not in derived and node not in constant:
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
                if operand in derived:
                    reader.replace_input_with(operand, clone_for(operand, reader))
    graph.eliminate_dead_code()


def weight_only(captured: Captured) -> set[fx.Node]:
    """Pure ops whose tensor operands are weights, weight-only or constant, but not all constant.

    Save those that are outputs, and those that another op writes over.
    """
    return _derived_and_constant(captured)[0]


def _derived_and_constant(captured: Captured) -> tuple[set[fx.Node], set[fx.Node]]:
    """The weight-only ops, and the pure ops that nothing decides but constants."""
    weights, buffers = set(captured.weights), set(captured.graph.find_nodes(op="get_attr"))
    outputs = {*captured.results, *captured.gradients.values()}
    written = storages_of(filter(None, map(overwritten, captured.graph.nodes))).keys()
    derived: set[fx.Node] = set()
    constant: set[fx.Node] = set()
    for node in captured.graph.nodes:
        if node.op != "call_function" or node in outputs or not _is_pure(node.target):
            continue
        if storages_of([node]).keys() & written:
            continue
        undecided = set(node.all_input_nodes) - buffers - constant
        if not undecided:
            constant.add(node)
        elif all(operand in weights or operand in derived for operand in undecided):
            derived.add(node)
    return derived, constant


def _is_pure(target: Any) -> bool:
    if target is operator.getitem:
        return True
    schema = getattr(target, "_schema", None)
    return schema is not None and not schema.is_mutable
