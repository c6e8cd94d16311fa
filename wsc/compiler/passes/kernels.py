"""Refuse a step that holds an op without a kernel, or that writes to a model buffer."""

from __future__ import annotations

import torch
from torch import fx

from wsc.compiler.capture import Captured
from wsc.compiler.capture_errors import line_of_node
from wsc.compiler.supported_ops import family
from wsc.core.errors import ApplianceCompilationError


def check_kernels(captured: Captured) -> None:
    """Note each op's cost family in ``meta["family"]``.

    Raises ApplianceCompilationError that lists every op without a kernel, with its line.
    """
    missing: dict[str, str] = {}
    for node in captured.graph.nodes:
        if node.op != "call_function":
            continue
        _refuse_buffer_update(node)
        node.meta["family"] = family(node)
        if node.meta["family"] is None:
            line = line_of_node(node.meta.get("stack_trace")) or node.meta["layer"]
            missing.setdefault(str(node.target), line or "outside the model")
    if missing:
        raise ApplianceCompilationError(
            f"no kernel for {', '.join(missing)}",
            where="; ".join(missing.values()),
            rule="every op of the step needs a kernel on the wafer",
            remedy="write it with supported ops, or move it into the input function",
        )


def _refuse_buffer_update(node: fx.Node) -> None:
    schema = getattr(node.target, "_schema", None)
    if schema is None or not schema.is_mutable:
        return
    written = node.args[0]
    if isinstance(written, fx.Node) and written.op in {"get_attr", "placeholder"}:
        name = torch.typename(node.target) if not hasattr(node.target, "name") else node.target
        raise ApplianceCompilationError(
            f"op {name} writes to a buffer, an input or a parameter of the model",
            where=line_of_node(node.meta.get("stack_trace")),
            rule="buffers are constants while the step runs; state lives in MemoryX",
            remedy="use a layer without running statistics (LayerNorm instead of BatchNorm), "
            "or write out of place",
        )
