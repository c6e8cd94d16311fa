"""How much an op does, for the clock: operations, and what its kernel loops over."""

from __future__ import annotations

from collections.abc import Collection
from math import prod

from torch import fx
from torch.utils._pytree import tree_leaves

from wsc.compiler.storages import tensors_of
from wsc.compiler.supported_ops import op_name
from wsc.core.program import OpWork

_LOOP_OVER_OPERAND = frozenset({"reduction", "softmax", "norm"})


def work_of(node: fx.Node, weights: Collection[fx.Node] = ()) -> OpWork:
    """The OpWork of one call node, from the shapes of its operands and result.

    ``weights`` are the nodes that hold streamed weights or what is derived from them alone.
    """
    operands = [tuple(t.shape) for operand in _operands(node) for t in tensors_of(operand)]
    results = tensors_of(node)
    kind = node.meta["family"]
    name = op_name(node)
    shape = _shape(kind, name, operands, [tuple(t.shape) for t in results])
    return OpWork(
        op=name,
        kind=kind,
        flops=_flops(kind, name, shape, sum(t.numel() for t in results)),
        shape=shape,
        streams=any(operand in weights for operand in node.all_input_nodes),
    )


def _operands(node: fx.Node) -> list[fx.Node]:
    """In the order of the arguments, one that is used twice twice."""
    return [leaf for leaf in tree_leaves((node.args, node.kwargs)) if isinstance(leaf, fx.Node)]


def _shape(
    kind: str, name: str, operands: list[tuple[int, ...]], results: list[tuple[int, ...]]
) -> tuple[int, ...]:
    """What the kernel loops over; see OpWork."""
    if kind == "matmul":
        left, right = operands[-2:]  # before them, what addmm and baddbmm add
        *batch, rows, inner = left if len(left) > 1 else (1, *left)
        return prod(batch), rows, inner, right[-1] if len(right) > 1 else 1
    if kind == "attention":
        query, key = operands[1:3] if name.endswith("backward") else operands[:2]
        *batch, queries, head_size = query
        return prod(batch), queries, key[-2], head_size
    looped = operands[:1] if kind in _LOOP_OVER_OPERAND and operands else results[:1]
    return looped[0] if looped else ()


def _flops(kind: str, name: str, shape: tuple[int, ...], results: int) -> int:
    """Two per multiply-add in matrix products, one per result element elsewhere.

    Attention forward is two products of (T, T, D) per head; backward recomputes the scores and
    forms four more (Dao et al. 2022, arXiv:2205.14135, algorithm 4): 2.5 times the forward.
    """
    if kind == "matmul":
        return 2 * prod(shape)
    if kind == "attention":
        forward = 4 * prod(shape)
        return forward * 5 // 2 if name.endswith("backward") else forward
    return 0 if kind == "view" else results
