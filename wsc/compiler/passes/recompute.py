"""Run layers again in the backward pass instead of keeping what they made in the forward pass.

What a layer's backward pass alone reads of its forward pass is computed anew from the layer's
inputs, by clones of the very same ops right before the first reader of each. Random ops draw by
key, so their clones draw the same numbers, and every value has the same bits. The clock and the
memory model foresee what this does to a program (timing.sram.recompute).
"""

from __future__ import annotations

from collections.abc import Collection

from torch import fx

from wsc.compiler.capture import Captured
from wsc.compiler.internals import internals
from wsc.compiler.storages import overwritten


def recompute_layers(captured: Captured, layers: Collection[str]) -> None:
    """Edit the graph of a captured step, after its segments are assigned.

    Leaves layers alone that overwrite what another op reads, too: a clone could come too late.
    """
    for layer in layers:
        forward = _ops_of(captured, layer, "forward")
        if not any(_overwrites_shared(node, forward) for node in forward):
            _recompute(captured.graph, forward, _ops_of(captured, layer, "backward"))
    captured.graph.eliminate_dead_code()


def _recompute(
    graph: fx.Graph, forward: dict[fx.Node, None], backward: dict[fx.Node, None]
) -> None:
    missing = internals(forward, backward)
    clones: dict[fx.Node, fx.Node] = {}

    def clone(node: fx.Node, reader: fx.Node) -> fx.Node:
        if node not in forward:
            return node
        if node not in clones:
            operands = {operand: clone(operand, reader) for operand in node.all_input_nodes}
            with graph.inserting_before(reader):
                clones[node] = graph.node_copy(node, operands.__getitem__)
            clones[node].meta["segment"] = reader.meta["segment"]
        return clones[node]

    for reader in backward:
        for operand in reader.all_input_nodes:
            if operand in missing:
                reader.replace_input_with(operand, clone(operand, reader))


def _ops_of(captured: Captured, layer: str, phase: str) -> dict[fx.Node, None]:
    """The call nodes of a layer in one direction, in order."""
    return {
        node: None
        for node in captured.graph.nodes
        if node.op == "call_function"
        and (node.meta["segment"].layer, node.meta["segment"].phase) == (layer, phase)
    }


def _overwrites_shared(node: fx.Node, forward: dict[fx.Node, None]) -> bool:
    written = overwritten(node)
    return written is not None and (written not in forward or len(written.users) > 1)
