"""How much an op does, for the clock: floating-point operations and bytes moved."""

from __future__ import annotations

from math import prod
from typing import Any

import torch
from torch import fx

from wsc.core.program import OpWork


def work_of(node: fx.Node) -> OpWork:
    """The OpWork of one call node, from the shapes of its operands and result."""
    operands = [_tensors(operand.meta.get("val")) for operand in node.all_input_nodes]
    results = _tensors(node.meta.get("val"))
    shapes = [tuple(t.shape) for tensors in operands for t in tensors]
    kind = node.meta["family"]
    name = getattr(getattr(node.target, "overloadpacket", None), "__name__", "")
    flops = _flops(kind, name or node.name, shapes, sum(t.numel() for t in results))
    moved = [t for tensors in (*operands, results) for t in tensors]
    num_bytes = 0 if kind == "view" else sum(t.numel() * t.element_size() for t in moved)
    return OpWork(op=name or str(node.target), kind=kind, flops=flops, num_bytes=num_bytes)


def _tensors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    return (
        [t for t in value if isinstance(t, torch.Tensor)] if isinstance(value, tuple | list) else []
    )


def _flops(kind: str, name: str, shapes: list[tuple[int, ...]], results: int) -> int:
    """Two per multiply-add in matrix products, one per result element elsewhere.

    Attention forward is two products of (T, T, D) per head; backward recomputes the scores and
    forms four more (Dao et al. 2022, arXiv:2205.14135, algorithm 4): 2.5 times the forward.
    """
    if kind == "matmul":
        matrices = [shape for shape in shapes if len(shape) >= 2]
        left, right = matrices[-2], matrices[-1]
        return 2 * prod(left) * right[-1]
    if kind == "attention":
        query = shapes[1] if name.endswith("backward") else shapes[0]
        key = shapes[2] if name.endswith("backward") else shapes[1]
        forward = 4 * prod(query) * key[-2]
        return forward * 5 // 2 if name.endswith("backward") else forward
    return 0 if kind == "view" else results
