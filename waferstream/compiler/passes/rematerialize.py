"""Rematerialization: clone ops into the segment that reads them instead of stashing their values.

``rematerialize_weights`` clones values derived from weights. Autograd saves, for example, the
transposed or the cast weight of the forward pass for the backward pass. On the wafer the weight
streams again instead, so every op whose operands are weights and constants (such as a mask) is
cloned into each segment that reads it, right before its first reader there. Clones of pure ops give
the same bits. A value that another op overwrites is skipped: its clone would miss the write.

``recompute_layers`` clones whole layers into the backward pass, ``recompute_regions`` what a user's
program marks.
"""

from __future__ import annotations

import operator
from collections.abc import Collection
from typing import Any

from torch import fx

from waferstream.compiler.capture.annotations import recompute_marks
from waferstream.compiler.capture.captured import Captured
from waferstream.compiler.storages import RERUN, internals, overwritten, storages_of


def rematerialize_weights(captured: Captured) -> None:
    """Clone into each segment the weight-only ops that it reads."""
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
    """Return the pure ops whose operands are weights, weight-only or constant, not all constant.

    Ops that are outputs of the step or that another op overwrites are left out.
    """
    return _derived_and_constant(captured)[0]


def _derived_and_constant(captured: Captured) -> tuple[set[fx.Node], set[fx.Node]]:
    """Return the weight-only ops, and the pure ops that depend on constants alone."""
    weights, buffers = set(captured.weights), set(captured.graph.find_nodes(op="get_attr"))
    outputs = {*captured.results.values(), *captured.gradients.values()}
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


def recompute_layers(captured: Captured, layers: Collection[str]) -> None:
    """Run layers again in the backward pass instead of keeping their internals.

    Values that a layer's backward pass alone reads of its forward pass are computed again from the
    layer's inputs, by clones of the same ops right before the first reader of each. Random ops draw
    by key, so their clones draw the same numbers, and every value has the same bits.
    ``waferstream.machine.sram`` predicts the effect on a program.

    Args:
        captured: A step whose segments are assigned.
        layers: Names of layers. A layer that overwrites a value which another op reads is skipped,
            because a clone could run too late.
    """
    ops = _ops_by_segment(captured)
    for layer in layers:
        forward = ops.get((layer, "forward"), {})
        if not any(_overwrites_shared(node, forward) for node in forward):
            _recompute(captured.graph, forward, ops.get((layer, "backward"), {}))
    captured.graph.eliminate_dead_code()


def recompute_regions(captured: Captured) -> None:
    """Run the regions that a user's program has marked again in the backward pass of their layer.

    Values that enter a region are kept, and those that a marked checkpoint returns.

    Args:
        captured: A step whose segments are assigned.
    """
    ops = _ops_by_segment(captured)
    for (layer, phase), nodes in ops.items():
        region = {node: None for node in nodes if _is_recomputed(node, nodes)}
        overwrites = any(_overwrites_shared(node, region) for node in region)
        if phase == "forward" and region and not overwrites:
            _recompute(captured.graph, region, ops.get((layer, "backward"), {}))
    captured.graph.eliminate_dead_code()


def _is_recomputed(node: fx.Node, forward: Collection[fx.Node]) -> bool:
    """Return whether an op lies in a marked region and is no result of a marked checkpoint."""
    region, checkpoint = recompute_marks(node)
    readers = [user for user in node.users if user in forward]
    is_result = any(recompute_marks(user)[1] != checkpoint for user in readers)
    return region is not None and (checkpoint is None or not is_result)


def _recompute(
    graph: fx.Graph, forward: dict[fx.Node, None], backward: dict[fx.Node, None]
) -> None:
    """Clone the ops of one layer, or of part of it, that its backward pass needs."""
    missing = internals(forward, backward)
    clones: dict[fx.Node, fx.Node] = {}

    def clone(node: fx.Node, reader: fx.Node) -> fx.Node:
        if node not in forward:
            return node
        if node not in clones:
            operands = {operand: clone(operand, reader) for operand in node.all_input_nodes}
            with graph.inserting_before(reader):
                clones[node] = graph.node_copy(node, operands.__getitem__)
            clones[node].meta.update({"segment": reader.meta["segment"], RERUN: True})
        return clones[node]

    for reader in backward:
        for operand in reader.all_input_nodes:
            if operand in missing:
                reader.replace_input_with(operand, clone(operand, reader))


def _ops_by_segment(captured: Captured) -> dict[tuple[str, str], dict[fx.Node, None]]:
    """Return the call nodes of each layer in each direction, in order."""
    found: dict[tuple[str, str], dict[fx.Node, None]] = {}
    for node in captured.graph.nodes:
        if node.op == "call_function":
            segment = node.meta["segment"]
            found.setdefault((segment.layer, segment.phase), {})[node] = None
    return found


def _overwrites_shared(node: fx.Node, forward: dict[fx.Node, None]) -> bool:
    """Return whether an op overwrites a value that another op reads."""
    written = overwritten(node)
    return written is not None and (written not in forward or len(written.users) > 1)
