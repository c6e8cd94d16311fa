"""Constants of a recorded step that differ from step to step, as inputs of its program.

Python of a step runs again where state that it reads has changed, and records the same ops with
other numbers or other tensors of the program. These constants become inputs of the kernels, so that
one program serves all steps. ``differences`` finds them, ``marked`` notes them in the graph, where
they survive a change of the micro-batch size, and ``replace_marked`` makes them inputs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import fx

from waferstream.compiler.capture.captured import Captured
from waferstream.compiler.storages import tensors_of
from waferstream.core.program.program import StepInput

Place = tuple[int, tuple[Any, ...]]
"""A constant of a graph: the position of its node, and the way to it in the node's arguments.

The way to the tensor of a ``get_attr`` is empty.
"""

MARK = "step_inputs"
"""The entry of ``meta`` with the name of each input, by the way to its constant."""

_MARKS = ("layer", "backward", "seed", "loss_scale")


def differences(one: Captured, other: Captured) -> set[Place] | None:
    """Return the constants in which two recordings of a step differ; None if ops differ, too."""
    if _outline(one) != _outline(other):
        return None
    numbers = [{node: i for i, node in enumerate(each.graph.nodes)} for each in (one, other)]
    found: set[Place] = set()
    for (a, place), b in zip(numbers[0].items(), numbers[1], strict=True):
        if a.op == "get_attr":
            constants = [getattr(each.module, str(n.target)) for each, n in ((one, a), (other, b))]
            if not _are_equal(*constants):
                if not _are_alike(*constants):
                    return None
                found.add((place, ()))
            continue
        leaves = [dict(_leaves(node, known)) for node, known in zip((a, b), numbers, strict=True)]
        if leaves[0].keys() != leaves[1].keys():
            return None
        for way, value in leaves[0].items():
            now = leaves[1][way]
            if repr(value) != repr(now):
                if not (_is_number(value) and _is_number(now)):
                    return None
                found.add((place, way))
    return found


def value_at(captured: Captured, place: Place) -> torch.Tensor:
    """Return a constant of a recording; a number as a scalar of 64 bits, which holds it exactly."""
    number, way = place
    node = list(captured.graph.nodes)[number]
    if not way:
        constant: torch.Tensor = getattr(captured.module, str(node.target))
        return constant
    return torch.tensor(_at((node.args, node.kwargs), way), dtype=_dtype_of(node, way))


@contextmanager
def marked(captured: Captured, names: Mapping[Place, str]) -> Iterator[None]:
    """Note in the graph, inside the block, which constants are inputs of each step."""
    nodes = list(captured.graph.nodes)
    for (number, way), name in names.items():
        nodes[number].meta.setdefault(MARK, {})[way] = name
    try:
        yield
    finally:
        for node in nodes:
            node.meta.pop(MARK, None)


def replace_marked(captured: Captured) -> tuple[StepInput, ...]:
    """Replace the marked constants of a step by inputs of its graph, and return these."""
    graph, found = captured.graph, []
    for node in list(graph.nodes):
        for way, name in node.meta.get(MARK, {}).items():
            with graph.inserting_after(graph.find_nodes(op="placeholder")[-1]):
                given = graph.placeholder(name)
            found.append(StepInput(name, is_number=bool(way)))
            if way:
                given.meta.update(layer="", backward=False)
                node.args, node.kwargs = _with((node.args, node.kwargs), way, given)
            else:
                given.meta = {key: value for key, value in node.meta.items() if key != MARK}
                node.replace_all_uses_with(given)
                graph.erase_node(node)
    return tuple(found)


def _outline(captured: Captured) -> list[object]:
    """Return all that two recordings of one program have in common, besides arguments of ops."""
    nodes = [
        (
            node.op,
            None if node.op == "get_attr" else node.target,
            [node.meta.get(key) for key in _MARKS],
            [str((t.dtype, t.shape, t.stride(), t.storage_offset())) for t in tensors_of(node)],
        )
        for node in captured.graph.nodes
    ]
    shared = (captured.parameters, captured.inputs, captured.trained, captured.replaced)
    return [*nodes, shared, captured.num_results]


def _leaves(node: fx.Node, numbers: Mapping[fx.Node, int]) -> Iterator[tuple[Any, Any]]:
    """Yield the arguments of a node by the way to them; nodes by their positions."""

    def visit(value: Any, way: tuple[Any, ...]) -> Iterator[tuple[Any, Any]]:
        if isinstance(value, fx.Node):
            yield way, ("node", numbers[value])
        elif isinstance(value, list | tuple):
            yield way, (type(value).__name__, len(value))
            for key, part in enumerate(value):
                yield from visit(part, (*way, key))
        elif isinstance(value, dict):
            yield way, ("dict", *value)
            for key, part in value.items():
                yield from visit(part, (*way, key))
        else:
            yield way, value

    yield from visit((node.args, node.kwargs), ())


def _at(value: Any, way: tuple[Any, ...]) -> Any:
    for key in way:
        value = value[key]
    return value


def _with(value: Any, way: tuple[Any, ...], new: Any) -> Any:
    """Return nested arguments with another value at the end of a way."""
    if not way:
        return new
    key, *rest = way
    if isinstance(value, dict):
        return {**value, key: _with(value[key], tuple(rest), new)}
    parts = list(value)
    parts[key] = _with(parts[key], tuple(rest), new)
    return tuple(parts) if isinstance(value, tuple) else parts


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _dtype_of(node: fx.Node, way: tuple[Any, ...]) -> torch.dtype:
    is_float = isinstance(_at((node.args, node.kwargs), way), float)
    return torch.float64 if is_float else torch.int64


def _are_equal(one: Any, other: Any) -> bool:
    if one is other:
        return True
    if not (_are_alike(one, other)):
        return False
    flat = [each.contiguous().view(-1).view(torch.uint8) for each in (one, other)]
    return torch.equal(*flat)


def _are_alike(one: Any, other: Any) -> bool:
    """Return whether two constants are tensors of one form."""
    if not (isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor)):
        return False
    outlines = [(t.dtype, t.shape, t.stride(), t.device) for t in (one, other)]
    return outlines[0] == outlines[1]


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
