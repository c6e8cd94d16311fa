"""The closed form for each family of ops of a captured graph."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from wsc.core.errors import ApplianceCompilationError
from wsc.core.program import OpWork
from wsc.timing.kernels import tensors
from wsc.timing.kernels.cycles import Cycles
from wsc.timing.kernels.gemm import weight_streaming
from wsc.timing.kernels.grid import Grid
from wsc.timing.kernels.resident import resident_product, weight_gradient

Kernel = Callable[[Grid, OpWork, str, float], Cycles]
"""Cost of an op on a grid, with the dtype of its elements and the share of non-zero weights."""

TRANSCENDENTAL = re.compile(
    r"(exp2?|expm1|log2?|log10|log1p|gelu|silu|tanh|sigmoid|log_sigmoid|softplus|mish|elu|erfc?"
    r"|sin|cos|tan|pow|r?sqrt)(_forward|_backward)?_?"
)
"""Elementwise ops with a special function of each element."""


def op_cycles(grid: Grid, work: OpWork, dtype: str, density: float = 1.0) -> Cycles:
    """What one op of a captured graph costs.

    ``dtype`` is a name of BYTES_PER_ELEMENT; ``density`` the share of non-zero weights, which only
    products with streamed weights feel. Raises ApplianceCompilationError for an unknown family.
    """
    kernel = KERNELS.get(work.kind)
    if kernel is None:
        raise ApplianceCompilationError(
            "an op has no cost on the emulated clock",
            where=work.op,
            value=work.kind,
            rule=f"kinds: {', '.join(sorted(KERNELS))}",
        )
    return kernel(grid, work, dtype, density)


def _matmul(grid: Grid, work: OpWork, dtype: str, density: float) -> Cycles:
    """Streamed weights, a weight gradient (a single product of resident operands), or many."""
    batch, rows, inner, columns = work.shape
    if work.streams:
        return weight_streaming(grid, batch * rows, inner, columns, dtype, density)
    if batch == 1:
        return weight_gradient(grid, inner, rows, columns, dtype)
    return resident_product(grid, batch, rows, inner, columns, dtype)


def _attention(grid: Grid, work: OpWork, dtype: str, _: float) -> Cycles:
    heads, queries, keys, head_size = work.shape
    return tensors.attention(
        grid, heads, queries, keys, head_size, dtype, backward=_is_backward(work)
    )


def _softmax(grid: Grid, work: OpWork, dtype: str, _: float) -> Cycles:
    if work.op.startswith("nll_loss"):
        return tensors.loss(grid, work.shape, dtype)
    return tensors.softmax(grid, work.shape, dtype, backward=_is_backward(work))


def _norm(grid: Grid, work: OpWork, dtype: str, _: float) -> Cycles:
    return tensors.norm(grid, work.shape, dtype, backward=_is_backward(work))


def _reduction(grid: Grid, work: OpWork, dtype: str, _: float) -> Cycles:
    return tensors.reduction(grid, work.shape, dtype, results=work.flops)


def _gather(grid: Grid, work: OpWork, dtype: str, _: float) -> Cycles:
    return tensors.gather(grid, work.shape, dtype)


def _copy(grid: Grid, work: OpWork, dtype: str, _: float) -> Cycles:
    return tensors.copy(grid, work.shape, dtype)


def _random(grid: Grid, work: OpWork, dtype: str, _: float) -> Cycles:
    return tensors.elementwise(grid, work.shape, dtype, tensors.RANDOM_PASSES)


def _elementwise(grid: Grid, work: OpWork, dtype: str, _: float) -> Cycles:
    if TRANSCENDENTAL.fullmatch(work.op):
        return tensors.transcendental(grid, work.shape, dtype)
    return tensors.elementwise(grid, work.shape, dtype)


def _view(_grid: Grid, _work: OpWork, _dtype: str, _density: float) -> Cycles:
    """Nothing moves."""
    return Cycles()


def _is_backward(work: OpWork) -> bool:
    return "backward" in work.op


KERNELS: Mapping[str, Kernel] = {
    "matmul": _matmul,
    "attention": _attention,
    "norm": _norm,
    "softmax": _softmax,
    "reduction": _reduction,
    "gather": _gather,
    "random": _random,
    "copy": _copy,
    "elementwise": _elementwise,
    "view": _view,
}
"""Every family of wsc.compiler.supported_ops, by name."""
