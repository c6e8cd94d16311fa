"""The graph passes over a captured step, in the order in which they run.

    replace_view_writes   x.unsqueeze_(0) and the like become views
    drop_aliases          remove detach and alias, which only autograd needs
    split_random_writes   rrelu_ becomes rrelu and a copy
    key_random_ops        random ops draw from (seed, step, micro-batch or batch, op)
    key_roundings         so does stochastic rounding
    eliminate_dead_code   remove ops that no output needs
    check_kernels         every op has a kernel, or the error names op, line and remedy
    assign_segments       assign each op to a layer, forward or backward (``layers``)
    rematerialize_weights values derived from weights stay in a segment (``rematerialize``)
    merge_views           a view of a view becomes one view

Each is a function of the captured step that edits its graph in place. Optional ones can be
disabled by name; the numerics do not depend on them.

Autograd transposes a weight for the forward product and again for the backward one, and its
gradient on the way back; modules flatten a value for a product, restore its shape and split it into
heads. A view takes a microsecond of the host and no time of the wafer, but every micro-batch takes
hundreds of them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

import torch
from torch import fx

from waferstream.compiler.capture.capture_errors import line_of_node
from waferstream.compiler.capture.captured import Captured
from waferstream.compiler.lower_half import PLACE, rounds_by_chance
from waferstream.compiler.ops import RANDOM_OPS, REMEDIES, op_kind, op_name
from waferstream.compiler.passes.layers import assign_segments
from waferstream.compiler.passes.rematerialize import rematerialize_weights
from waferstream.compiler.storages import overwritten
from waferstream.core.errors import ApplianceCompilationError
from waferstream.numerics import keyed_random
from waferstream.numerics.keyed_random import KEY_INPUT
from waferstream.numerics.precision import dtype_in_program

_ALIASES = {torch.ops.aten.detach.default, torch.ops.aten.alias.default}

_GROUPED = {"_grouped_mm", "expert_product"}
"""Products whose third operand has integers: the ends of groups of rows."""

_TURN, _VIEW = torch.ops.aten.t.default, torch.ops.aten.view.default


def replace_view_writes(captured: Captured) -> None:
    """Replace ops that change the shape of a tensor in place by the view that they amount to.

    Nodes after such an op read its result, so that no node reads the tensor under its old shape.
    """
    for node in captured.graph.nodes:
        if torch.Tag.inplace_view in getattr(node.target, "tags", ()):
            node.target = _as_view(node.target) or node.target


def _as_view(target: Any) -> Any:
    """Return the view with the name and the arguments of an op that writes, None if none has."""
    packet = getattr(torch.ops.aten, target.overloadpacket.__name__.removesuffix("_"))
    types = [argument.type for argument in target._schema.arguments]
    for overload in (getattr(packet, name) for name in packet.overloads()):
        if overload.is_view and [argument.type for argument in overload._schema.arguments] == types:
            return overload
    return None


def drop_aliases(captured: Captured) -> None:
    """Replace ``detach`` and ``alias`` by their operand."""
    for node in list(captured.graph.nodes):
        if node.op == "call_function" and node.target in _ALIASES:
            node.replace_all_uses_with(node.args[0])
            captured.graph.erase_node(node)


def eliminate_dead_code(captured: Captured) -> None:
    """Erase pure ops that nothing reads; ops that write in place stay."""
    captured.graph.eliminate_dead_code()


def split_random_writes(captured: Captured) -> None:
    """Replace in-place ``rrelu``, which overwrites values and noise, by itself and a copy."""
    aten: Any = torch.ops.aten
    graph = captured.graph
    for node in graph.find_nodes(op="call_function", target=aten.rrelu_with_noise_.default):
        with graph.inserting_before(node):
            drawn = graph.call_function(aten.rrelu_with_noise.default, node.args, node.kwargs)
            copy = graph.call_function(aten.copy_.default, (node.args[0], drawn))
        drawn.meta = {**node.meta, "val": torch.empty_like(node.meta["val"])}
        copy.meta = dict(node.meta)
        node.replace_all_uses_with(copy)
        graph.erase_node(node)


def key_random_ops(captured: Captured) -> None:
    """Replace every random op by a keyed kernel, which draws by (seed, step, micro-batch, op).

    The kernel gets the micro-batch's key, or that of the batch where it draws no sample's numbers
    (``Captured.batch_draws``), and the op's position among the random ops.

    Raises:
        ApplianceCompilationError: An op draws from a torch.Generator.
    """
    graph = captured.graph
    random_nodes = [node for node in graph.nodes if op_name(node) in RANDOM_OPS]
    if not random_nodes:
        return
    for position, node in enumerate(random_nodes):
        _refuse_generator(captured, node)
        is_for_batch = position in captured.batch_draws
        key = _key_input(graph, keyed_random.BATCH_KEY_INPUT if is_for_batch else KEY_INPUT)
        options = {name: given for name, given in node.kwargs.items() if name != "generator"}
        with graph.inserting_before(node):
            keyed = graph.call_function(
                keyed_random.KERNELS[op_name(node)], (key, position, *node.args), options
            )
        keyed.meta = dict(node.meta)
        node.replace_all_uses_with(keyed)
        graph.erase_node(node)


def _key_input(graph: fx.Graph, name: str = KEY_INPUT) -> fx.Node:
    """Return the graph input with a key; add it where it is not there."""
    found: list[fx.Node] = graph.find_nodes(op="placeholder", target=name)
    if found:
        return found[0]
    with graph.inserting_after(graph.find_nodes(op="placeholder")[-1]):
        key = graph.placeholder(name)
    key.meta.update(layer="", backward=False)
    return key


def key_roundings(captured: Captured) -> None:
    """Give each result that is rounded by chance its number, with which it draws.

    Clones of an op keep its number, so values that are computed again are rounded as before. Ops
    that nothing reads count, as they do in a plain loop.
    """
    if captured.rounding == "nearest":
        return
    dtype = dtype_in_program(captured.stream_dtype)
    drawing = [node for node in captured.graph.nodes if rounds_by_chance(node, dtype)]
    for place, node in enumerate(drawing):
        node.meta[PLACE] = place
    if drawing:
        _key_input(captured.graph)


def _refuse_generator(captured: Captured, node: fx.Node) -> None:
    """Raise for a random op that was given a torch.Generator."""
    constants = [operand for operand in node.all_input_nodes if operand.op == "get_attr"]
    values = [getattr(captured.module, str(constant.target)) for constant in constants]
    if any(isinstance(value, torch.Generator) for value in values):
        raise ApplianceCompilationError(
            f"op {op_name(node)} must draw without a torch.Generator",
            code="generator-in-step",
            where=_place(node),
            rule="random numbers depend on seed, step, micro-batch and op, and on nothing else",
            remedy="leave the generator out and set the seed of the run",
        )


def check_kernels(captured: Captured) -> None:
    """Set ``meta["kind"]`` of each op.

    Raises:
        ApplianceCompilationError: Ops have no kernel (the error lists all, with their lines), an op
            writes to a value that outlives the step, or a product has operands of two float types.
    """
    missing: dict[str, fx.Node] = {}
    weights = captured.weights
    for node in captured.graph.nodes:
        if node.op != "call_function":
            continue
        node.meta["kind"] = op_kind(node)
        _refuse_update(node, weights)
        _refuse_mixed_floats(node)
        if node.meta["kind"] is None:
            missing.setdefault(str(node.target), node)
    if missing:
        names = list(dict.fromkeys(op_name(node) for node in missing.values()))
        remedies = [f"{name}: {REMEDIES[name]}" for name in names if name in REMEDIES]
        raise ApplianceCompilationError(
            f"no kernel for {', '.join(missing)}",
            code="op-without-kernel",
            where="; ".join(_place(node) for node in missing.values()),
            rule="every op of the step needs a kernel on the wafer (the page Ops lists them)",
            remedy="; ".join(remedies)
            or "write it with supported ops, or move it into the input function",
        )


def _place(node: fx.Node) -> str:
    """Return the module path and the line of the user's program that an op comes from."""
    line = line_of_node(node.meta.get("stack_trace")) or "outside the model"
    return f"{node.meta['layer']}, {line}" if node.meta["layer"] else line


def _refuse_update(node: fx.Node, weights: Mapping[fx.Node, str]) -> None:
    """Raise for an op that writes to a value that outlives the step, or to a view of it."""
    written = overwritten(node)
    if written is None or _viewed(written).op not in {"get_attr", "placeholder"}:
        return
    if (name := weights.get(_viewed(written))) is not None:
        raise ApplianceCompilationError(
            f"op {op_name(node)} writes to parameter {name}",
            code="weight-written-in-step",
            where=line_of_node(node.meta.get("stack_trace")),
            rule="MemoryX changes weights, by the optimizer that the step calls",
            remedy="write to it in the loop, after the traced step: MemoryX gets the new values",
        )
    raise ApplianceCompilationError(
        f"op {op_name(node)} writes to a buffer, an input or a parameter of the model",
        code="write-to-constant",
        where=line_of_node(node.meta.get("stack_trace")),
        rule="a step may write buffers of its model, and nothing else that outlives it",
        remedy="register the tensor as a buffer of the model, or write out of place",
    )


def _refuse_mixed_floats(node: fx.Node) -> None:
    """Raise for a product of two float types, which fails on values but not on shapes."""
    if node.meta["kind"] != "matmul":
        return
    operands = node.all_input_nodes[: 2 if op_name(node) in _GROUPED else None]
    found = {operand.meta["val"].dtype for operand in operands}
    if len(found) > 1:
        raise ApplianceCompilationError(
            f"op {op_name(node)} multiplies tensors of different types",
            code="product-of-two-types",
            where=line_of_node(node.meta.get("stack_trace")),
            value=" and ".join(sorted(map(str, found))),
            rule="the operands of a product have one type; float64 is never cast",
            remedy="cast an operand, or send the batch as float32",
        )


def _viewed(node: fx.Node) -> fx.Node:
    """Return the node that ``node`` is a view of, or ``node`` itself."""
    while node.meta.get("kind") == "view":
        node = node.all_input_nodes[0]
    return node


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


PASSES: tuple[Callable[[Captured], None], ...] = (
    replace_view_writes,
    drop_aliases,
    split_random_writes,
    key_random_ops,
    key_roundings,
    eliminate_dead_code,
    check_kernels,
    assign_segments,
    rematerialize_weights,
    merge_views,
)
OPTIONAL = frozenset({"drop_aliases", "eliminate_dead_code", "merge_views"})


def run_passes(captured: Captured, disabled: Collection[str] = ()) -> None:
    """Run all passes except the disabled ones; ValueError for one that is not optional."""
    if unknown := set(disabled) - OPTIONAL:
        raise ValueError(f"passes {sorted(unknown)} cannot be disabled; {sorted(OPTIONAL)} can")
    for run in PASSES:
        if run.__name__ not in disabled:
            run(captured)
    captured.graph.lint()
