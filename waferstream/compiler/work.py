"""Work of an op: the extents that its kernel loops over and its operations, from its shapes."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from math import ceil, prod
from typing import Any

from torch import fx
from torch.utils._pytree import tree_leaves

from waferstream.compiler.ops import op_name
from waferstream.compiler.storages import tensors_of
from waferstream.core.program.segment import OpWork

Shape = tuple[int, ...]

_LOOP_OVER_OPERAND = frozenset({"reduction", "softmax", "norm"})
_TAPS_OF_INTERPOLATION = {"nearest": 1, "linear": 2, "bilinear": 4, "trilinear": 8, "bicubic": 16}
_GRID_SAMPLER_TAPS = (2, 1, 4)  # per dimension; torch numbers linear, nearest, cubic from 0


def work_of(node: fx.Node, weights: Collection[fx.Node] = ()) -> OpWork:
    """Return the work of one call node, from the shapes of its operands and result.

    Args:
        node: A node with its op kind in ``meta["kind"]``.
        weights: Nodes that hold streamed weights, or values derived from weights alone.
    """
    operands = [tuple(t.shape) for operand in _operands(node) for t in tensors_of(operand)]
    results = tensors_of(node)
    kind = node.meta["kind"]
    name = op_name(node)
    if kind == "convolution":
        name = _convolution_name(node)
    shape = _shape(node, kind, operands, [tuple(t.shape) for t in results])
    return OpWork(
        op=name,
        kind=kind,
        flops=_flops(kind, name, shape, sum(t.numel() for t in results)),
        shape=shape,
        streams=any(operand in weights for operand in node.all_input_nodes),
    )


def _operands(node: fx.Node) -> list[fx.Node]:
    """Return the operands in the order of the arguments, with repetitions."""
    return [leaf for leaf in tree_leaves((node.args, node.kwargs)) if isinstance(leaf, fx.Node)]


def _argument(node: fx.Node, name: str) -> Any:
    """Return an argument of an aten op by its name in the schema, its default if not given."""
    target: Any = node.target
    for position, declared in enumerate(target._schema.arguments):
        if declared.name == name:
            given = node.args[position] if position < len(node.args) else declared.default_value
            return node.kwargs.get(name, given)
    raise KeyError(f"{node.target} has no argument {name}")


def _shape(node: fx.Node, kind: str, operands: list[Shape], results: list[Shape]) -> Shape:
    """Return the extents that the kernel loops over; see OpWork."""
    extents = _EXTENTS_OF_OP.get(op_name(node)) or _EXTENTS_OF_KIND.get(kind)
    if extents is not None:
        return extents(node, operands, results)
    looped = operands[:1] if kind in _LOOP_OVER_OPERAND and operands else results[:1]
    return looped[0] if looped else ()


def _product(_: fx.Node, operands: list[Shape], _results: list[Shape]) -> Shape:
    """Return (batch, rows, inner, columns) of a product of matrices."""
    left, right = operands[-2:]  # addmm, baddbmm and addbmm have their addend before them
    *batch, rows, inner = left if len(left) > 1 else (1, *left)
    return prod(batch), rows, inner, right[-1] if len(right) > 1 else 1


def _grouped(_: fx.Node, operands: list[Shape], _results: list[Shape]) -> Shape:
    """Return (groups, rows, inner, columns) of products of groups of rows, or of columns.

    The offsets of the groups, the last operand, are values; groups are taken to be equally large.
    """
    left, right, (groups,) = operands[:2] + operands[-1:]
    rows, inner, columns = left[-2], left[-1], right[-1]
    if len(left) == 3:
        columns = ceil(columns / groups)
    elif len(right) == 3:
        rows = ceil(rows / groups)
    else:
        inner = ceil(inner / groups)
    return groups, rows, inner, columns


def _triangular(node: fx.Node, operands: list[Shape], results: list[Shape]) -> Shape:
    """Return (batch, rows, rows, columns) of systems of as many equations as unknowns."""
    rows, (*batch, high, wide) = operands[0][-1], results[0]
    return prod(batch), rows, rows, wide if _argument(node, "left") else high


def _convolution(node: fx.Node, operands: list[Shape], results: list[Shape]) -> Shape:
    """Return (positions, patch, channels) of the product that a convolution amounts to.

    A convolution multiplies the patch of input values at each position of its output by the
    weights of each output channel (im2col). A transposed one is the adjoint: it multiplies the
    channels at each position of its input, which gives a patch of its output.
    """
    if op_name(node).endswith("backward"):
        gradient, inputs, weight = operands[:3]
    else:
        (inputs, weight), gradient = operands[:2], results[0]
    channels, *patch = weight
    samples, _, *positions = inputs if _argument(node, "transposed") else gradient
    return samples * prod(positions), prod(patch), channels


def _convolution_name(node: fx.Node) -> str:
    """Return the name of a convolution with what it computes.

    ``convolution``, with ``_transposed``; backward ``convolution_backward``, with ``_input`` or
    ``_weight`` if only that gradient is needed, ``_bias`` if neither is.
    """
    name = "convolution_transposed" if _argument(node, "transposed") else "convolution"
    if not op_name(node).endswith("backward"):
        return name
    of_input, of_weight, _ = _argument(node, "output_mask")
    part = {(True, False): "_input", (False, True): "_weight", (False, False): "_bias"}
    return f"{name}_backward{part.get((of_input, of_weight), '')}"


def _attention(node: fx.Node, operands: list[Shape], _: list[Shape]) -> Shape:
    """Return (batch x heads, queries, keys, head size)."""
    query, key = operands[1:3] if op_name(node).endswith("backward") else operands[:2]
    *batch, queries, head_size = query
    return prod(batch), queries, key[-2], head_size


def _channels_last(_: fx.Node, operands: list[Shape], _results: list[Shape]) -> Shape:
    """Return samples, positions and channels of the first operand."""
    samples, channels, *positions = operands[0]
    return samples, *positions, channels


def _bags(_: fx.Node, operands: list[Shape], _results: list[Shape]) -> Shape:
    """Return the rows of all bags and their features."""
    table, indices = operands[:2]
    return prod(indices), table[-1]


def _windows(node: fx.Node, operands: list[Shape], results: list[Shape]) -> Shape:
    """Return the shape of the op's windows side by side: all values that it reads or adds to.

    The windows belong to the output of the forward op. col2im, the adjoint of im2col, has one value
    per window, as im2col has.
    """
    name = op_name(node)
    if name in {"im2col", "col2im"}:
        return operands[0] if name == "col2im" else results[0]
    is_backward = name.endswith("backward")
    small = operands[0] if is_backward else results[0]
    large = results[0] if is_backward else operands[0]
    return *small[:-1], small[-1] * _taps(node, large, small)


def _taps(node: fx.Node, inputs: Shape, outputs: Shape) -> int:
    """Return the values of the input that one value of the output is made of."""
    name = op_name(node)
    dimensions = int(re.findall(r"(\d)d", name)[0])
    extents = list(zip(inputs, outputs, strict=True))[-dimensions:]
    scales = prod(ceil(a / b) for a, b in extents)
    if interpolation := re.search(r"upsample_([a-z]+)", name):
        taps = _TAPS_OF_INTERPOLATION[interpolation[1]]
        return taps * scales if "_aa" in name else taps
    if name.startswith("grid_sampler"):
        return int(_GRID_SAMPLER_TAPS[_argument(node, "interpolation_mode")] ** dimensions)
    if "adaptive" in name:
        return scales
    kernel: Sequence[int] = _argument(node, "kernel_size")
    return prod(kernel) if len(kernel) > 1 else int(kernel[0] ** dimensions)


def _pairs(node: fx.Node, operands: list[Shape], results: list[Shape]) -> Shape:
    """Return the extents of all pairs of rows, and of the features that a pair has."""
    is_backward = op_name(node).endswith("backward")
    features = operands[1 if is_backward else 0][-1]
    return *(operands[0] if is_backward else results[0]), features


def _trilinear(node: fx.Node, operands: list[Shape], _: list[Shape]) -> Shape:
    """Return the extents that the products of three tensors run over, summed dimensions included.

    The op's arguments say where each tensor lacks a dimension of the others.
    """
    aligned = []
    for shape, name in zip(operands, ("expand1", "expand2", "expand3"), strict=True):
        extents = list(shape)
        for dimension in sorted(_argument(node, name)):
            extents.insert(dimension, 1)
        aligned.append(extents)
    return tuple(max(extents) for extents in zip(*aligned, strict=True))


_EXTENTS_OF_KIND = {
    "matmul": _product,
    "convolution": _convolution,
    "attention": _attention,
    "window": _windows,
}
_EXTENTS_OF_OP = {
    "_grouped_mm": _grouped,
    "linalg_solve_triangular": _triangular,
    "native_batch_norm": _channels_last,
    "native_batch_norm_backward": _channels_last,
    "_embedding_bag": _bags,
    "_embedding_bag_forward_only": _bags,
    "_cdist_forward": _pairs,
    "_cdist_backward": _pairs,
    "_pdist_forward": _pairs,
    "_pdist_backward": _pairs,
    "_trilinear": _trilinear,
}


def _flops(kind: str, name: str, shape: Shape, results: int) -> int:
    """Return the operations: two per multiply-add, one per result element of other ops.

    A triangular system has half the multiply-adds of a product with its whole matrix.
    Attention forward is two products of (T, T, D) per head; backward recomputes the scores and
    forms four more (Dao et al. 2022, arXiv:2205.14135, algorithm 4): 2.5 times the forward.
    """
    if name == "linalg_solve_triangular":
        return prod(shape)
    if kind == "matmul":
        return 2 * prod(shape)
    if kind == "convolution":
        products = 2 if name.endswith("backward") else 0 if name.endswith("bias") else 1
        return 2 * prod(shape) * products
    if kind == "attention":
        forward = 4 * prod(shape)
        return forward * 5 // 2 if name.endswith("backward") else forward
    if kind == "window":
        return prod(shape)
    return 0 if kind == "view" else results
