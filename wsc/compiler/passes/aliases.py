"""Remove what has no effect: aliases that only autograd needs, and ops whose results go unread."""

from __future__ import annotations

import torch

from wsc.compiler.capture import Captured

_ALIASES = {torch.ops.aten.detach.default, torch.ops.aten.alias.default}


def drop_aliases(captured: Captured) -> None:
    """Replace ``detach`` and ``alias`` by their operand."""
    for node in list(captured.graph.nodes):
        if node.op == "call_function" and node.target in _ALIASES:
            node.replace_all_uses_with(node.args[0])
            captured.graph.erase_node(node)


def eliminate_dead_code(captured: Captured) -> None:
    """Erase pure ops that nothing reads; ops that write in place stay."""
    captured.graph.eliminate_dead_code()
