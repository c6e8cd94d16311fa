"""Inputs of a captured graph for numbers that change from step to step."""

from __future__ import annotations

from waferstream.compiler.capture.captured import Captured


def fill_from_input(captured: Captured, mark: str, name: str) -> None:
    """Fill the constants that capture has marked from a new graph input; no mark, no input.

    Args:
        captured: The step; its graph is edited.
        mark: The entry of ``meta`` that marks a ``full`` or ``full_like``.
        name: The name of the input, a number.
    """
    graph = captured.graph
    marked = [node for node in graph.nodes if node.meta.get(mark)]
    if not marked:
        return
    with graph.inserting_after(graph.find_nodes(op="placeholder")[-1]):
        number = graph.placeholder(name)
    number.meta.update(layer="", backward=False)
    for node in marked:
        node.update_arg(1, number)
