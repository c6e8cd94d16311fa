"""What a layer's forward pass makes for its own backward pass alone: its *internals*."""

from __future__ import annotations

from collections.abc import Collection

from torch import fx

from wsc.compiler.storages import storages_of


def internals(forward: Collection[fx.Node], backward: Collection[fx.Node]) -> set[fx.Node]:
    """The nodes of ``forward`` that ``backward`` reads, and nobody else any view of them.

    ``forward`` and ``backward`` are the ops of one layer.
    """
    own = {*forward, *backward}
    shared = storages_of(node for node in forward if not own.issuperset(node.users)).keys()
    read = {operand for node in backward for operand in node.all_input_nodes}
    return {node for node in forward if node in read and not storages_of([node]).keys() & shared}


def needed_for(wanted: Collection[fx.Node], nodes: Collection[fx.Node]) -> set[fx.Node]:
    """Those of ``nodes``, which are in order, that compute the ``wanted`` ones of them."""
    found = set(wanted)
    for node in reversed(list(nodes)):
        if node in found:
            found.update(operand for operand in node.all_input_nodes if operand in nodes)
    return found
