"""The backward pass of single values of a captured step."""

from __future__ import annotations

from collections.abc import Collection

from torch import fx

from waferstream.compiler.results.label_counts import nll_of


def backward_of(node: fx.Node) -> list[fx.Node]:
    """Return the ops of the backward pass of a value of the forward pass, in order."""
    made = nll_of(node) or node
    number = made.meta["seq_nr"]
    same = [
        each
        for each in node.graph.nodes
        if each.op == "call_function" and each.meta.get("seq_nr") == number
    ]
    # An op without a gradient has the number of the op before.
    if next((each for each in same if not each.meta["backward"]), None) is not made:
        return []
    return [each for each in same if each.meta["backward"] and not each.meta.get("is_gradient_acc")]


def entering(backward: Collection[fx.Node]) -> list[fx.Node]:
    """Return the gradients that the backward pass of a value starts from."""
    read = (operand for node in backward for operand in node.all_input_nodes)
    return [
        operand
        for operand in dict.fromkeys(read)
        if operand not in backward and (operand.meta["backward"] or operand.meta["seed"])
    ]
