"""Refuse a step that holds an op without a kernel, or that writes to a model buffer."""

from __future__ import annotations

from torch import fx

from wsc.compiler.capture import Captured
from wsc.compiler.capture_errors import line_of_node
from wsc.compiler.storages import overwritten
from wsc.compiler.supported_ops import family, op_name
from wsc.core.errors import ApplianceCompilationError

_COPIED_GRADIENT = (
    "autograd copies a gradient: write to part of a tensor out of place (torch.where, torch.cat), "
    "and make one of two parameters that are only ever added to each other"
)


def check_kernels(captured: Captured) -> None:
    """Note each op's cost family in ``meta["family"]``.

    Raises ApplianceCompilationError that lists every op without a kernel, with its line.
    """
    missing: dict[str, str] = {}
    for node in captured.graph.nodes:
        if node.op != "call_function":
            continue
        node.meta["family"] = family(node)
        _refuse_update(node)
        if node.meta["family"] is None:
            line = line_of_node(node.meta.get("stack_trace")) or node.meta["layer"]
            missing.setdefault(str(node.target), line or "outside the model")
    if missing:
        raise ApplianceCompilationError(
            f"no kernel for {', '.join(missing)}",
            where="; ".join(missing.values()),
            rule="every op of the step needs a kernel on the wafer",
            remedy=_COPIED_GRADIENT
            if "aten.new_empty_strided.default" in missing
            else "write it with supported ops, or move it into the input function",
        )


def _refuse_update(node: fx.Node) -> None:
    """Raise for an op that writes to what outlives the step, itself or through a view of it."""
    written = overwritten(node)
    if written is None or _viewed(written).op not in {"get_attr", "placeholder"}:
        return
    raise ApplianceCompilationError(
        f"op {op_name(node)} writes to a buffer, an input or a parameter of the model",
        where=line_of_node(node.meta.get("stack_trace")),
        rule="buffers are constants while the step runs; state lives in MemoryX",
        remedy="use a layer without running statistics (LayerNorm instead of BatchNorm), "
        "or write out of place",
    )


def _viewed(node: fx.Node) -> fx.Node:
    """What a node is a view of; itself, if it is none."""
    while node.meta.get("family") == "view":
        node = node.all_input_nodes[0]
    return node
