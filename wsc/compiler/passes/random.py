"""Random ops draw from a stream that only (seed, step, micro-batch, op) decide.

The pass replaces each random op by a kernel of wsc.compiler.keyed_random and hands it the
micro-batch's key (a graph input named ``random_key``) and the op's position among random ops.
"""

from __future__ import annotations

from wsc.compiler import keyed_random
from wsc.compiler.capture import Captured
from wsc.compiler.supported_ops import RANDOM_OPS, op_name


def key_random_ops(captured: Captured) -> None:
    """Give every random op its own key; leaves other ops alone."""
    graph = captured.graph
    random_nodes = [node for node in graph.nodes if op_name(node) in RANDOM_OPS]
    if not random_nodes:
        return
    last_input = graph.find_nodes(op="placeholder")[-1]
    with graph.inserting_after(last_input):
        key = graph.placeholder(keyed_random.KEY_INPUT)
    key.meta.update(layer="", backward=False)
    for position, node in enumerate(random_nodes):
        with graph.inserting_before(node):
            keyed = graph.call_function(
                keyed_random.KERNELS[op_name(node)], (key, position, *node.args), dict(node.kwargs)
            )
        keyed.meta = dict(node.meta)
        node.replace_all_uses_with(keyed)
        graph.erase_node(node)
