"""Gradients of sparse weights, computed at the places of their non-zeros.

In a kernel the gradient of a weight is a product of two values that are no weights. Where nothing
but casts, roundings to nearest and transpositions lies between that product and the returned
gradient, the call is replaced by one that knows the weight. Its result is then flat: the values of
the non-zeros, as the gradient travels.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial

import torch

from csnode.sparsity.crossover import SparseProducts, largest_density
from csnode.sparsity.products import Pattern, sampled
from waferstream.core.program.segment import Segment
from waferstream.numerics.half_types import nearest

ATEN = "torch.ops.aten."
PRODUCT, _TURN = f"{ATEN}mm.default", f"{ATEN}t.default"
_NEAREST = f"{nearest.__module__}.{nearest.__name__}".replace(".", "_")  # as torch.fx writes it
_ELEMENTWISE = frozenset({f"{ATEN}_to_copy.default", _NEAREST})
"""Calls that do to the values of non-zeros what they do to a whole gradient."""

Bound = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def bind_gradients(
    kernel: ast.FunctionDef,
    segment: Segment,
    setting: SparseProducts,
    patterns: Mapping[str, Pattern],
) -> dict[str, Bound]:
    """Bind the products of a kernel's text that are gradients of weights.

    Args:
        kernel: The text; calls are replaced in place.
        segment: What the kernel returns.
        setting: ``runtime.engine.sparse_products``.
        patterns: Weights whose gradients travel as values of non-zeros, when the kernel runs.

    Returns:
        The functions that the text calls, by name.
    """
    bound: dict[str, Bound] = {}
    for weight, call, is_turned in gradient_calls(kernel, segment, (PRODUCT,), _ELEMENTWISE):
        name = f"gradient_product_{len(bound)}"
        call.func = ast.Name(name, ast.Load())
        bound[name] = partial(_gradient, weight, setting, patterns, is_turned)
    return bound


def gradient_calls(
    kernel: ast.FunctionDef,
    segment: Segment,
    sought: Collection[str],
    passed: Collection[str] = (),
) -> Iterator[tuple[str, ast.Call, bool]]:
    """Yield the calls of a kernel's text that make gradients, which nothing else reads.

    Args:
        kernel: The text.
        segment: What the kernel returns.
        sought: The names of such calls.
        passed: The names of calls that may lie between one of them and the gradient, as
            transpositions may.

    Yields:
        The weight, the call, and whether its result is transposed.
    """
    calls = {
        node.targets[0].id: node.value
        for node in kernel.body
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
        if isinstance(node.value, ast.Call)
    }
    names = (node for node in ast.walk(kernel) if isinstance(node, ast.Name))
    reads = Counter(name.id for name in names if isinstance(name.ctx, ast.Load))
    for weight, value in zip(segment.gradients, _returned_gradients(kernel, segment), strict=True):
        is_turned = False
        made = _maker(value, calls, reads)
        while made is not None and (name := ast.unparse(made.func)) not in sought:
            is_turned ^= name == _TURN
            is_passed = name == _TURN or name in passed
            made = _maker(made.args[0], calls, reads) if is_passed else None
        if made is not None:
            yield weight, made, is_turned


def _maker(
    value: ast.expr, calls: Mapping[str, ast.Call], reads: Mapping[str, int]
) -> ast.Call | None:
    """Return the call that makes a value that is read once; None if there is no such call."""
    if not isinstance(value, ast.Name) or reads[value.id] != 1:
        return None
    return calls.get(value.id)


def _returned_gradients(kernel: ast.FunctionDef, segment: Segment) -> list[ast.expr]:
    """Return the expressions of the gradients, behind the outputs in what a kernel returns."""
    last = kernel.body[-1]
    assert isinstance(last, ast.Return)
    assert isinstance(last.value, ast.Tuple)
    first = len(segment.outputs)
    return last.value.elts[first : first + len(segment.gradients)]


def _gradient(
    weight: str,
    setting: SparseProducts,
    patterns: Mapping[str, Pattern],
    is_turned: bool,
    left: torch.Tensor,
    right: torch.Tensor,
) -> torch.Tensor:
    """Return ``left @ right``, or of it the values of a weight's non-zeros, flat."""
    pattern = patterns.get(weight)
    if pattern is None or not _is_sparse(setting, pattern, len(right)):
        return torch.mm(left, right)
    slope, x = (right, left.t()) if is_turned else (left.t(), right)
    return sampled(slope, x, pattern).to(left.dtype)


def _is_sparse(setting: SparseProducts, pattern: Pattern, rows: int) -> bool:
    """Return whether a gradient is computed at the non-zeros alone; one without any is dense."""
    most = largest_density(setting, "gradient", rows, pattern.index.num_elements)
    return 0 < pattern.density <= most
