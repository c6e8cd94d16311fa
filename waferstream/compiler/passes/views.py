"""Views of views: what lies between an op and the memory that it reads.

Autograd transposes a weight for the forward product and again for the backward one, and its
gradient on the way back; modules flatten a value for a product, restore its shape and split it into
heads. A view takes a microsecond of the host and no time of the wafer, but every micro-batch takes
hundreds of them.
"""

from __future__ import annotations

import torch
from torch import fx

from waferstream.compiler.capture.captured import Captured

_TURN, _VIEW = torch.ops.aten.t.default, torch.ops.aten.view.default


def merge_views(captured: Captured) -> None:
    """Drop pairs of transpositions, and read a view of a view from what the first one views.

    Both views must be in one segment, and so must what replaces a value that leaves it.
    """
    graph = captured.graph
    for node in graph.nodes:
        if node.target not in {_TURN, _VIEW}:
            continue
        inner = node.args[0]
        if inner.target is not node.target or inner.meta["segment"] != node.meta["segment"]:
            continue
        source = inner.args[0]
        if node.target is _VIEW:
            node.update_arg(0, source)
        elif not _leaves(node) or source.meta.get("segment") == node.meta["segment"]:
            node.replace_all_uses_with(source)
    for node in reversed(graph.nodes):
        if node.target in {_TURN, _VIEW} and not node.users:
            graph.erase_node(node)


def _leaves(node: fx.Node) -> bool:
    """Return whether the step returns a value, or another segment reads it."""
    segment = node.meta["segment"]
    return any(user.meta.get("segment") != segment for user in node.users)
