"""Cost function of every op kind of a captured graph.

``cost_function_of`` binds the closed form of an op's kind to the sizes of the op. Ops with equal
cost functions cost the same, so that callers evaluate each function once.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from math import prod
from typing import Any, ClassVar, NamedTuple

from waferstream.core.errors import ApplianceCompilationError
from waferstream.core.program.segment import OpWork
from waferstream.core.user_code import import_derived
from waferstream.machine.kernels import spatial, tensors
from waferstream.machine.kernels.grid import Cycles, Grid
from waferstream.machine.kernels.masked import sparse_weight_gradient
from waferstream.machine.kernels.resident import (
    resident_product,
    triangular_solve,
    weight_gradient,
)
from waferstream.machine.kernels.streaming import weight_streaming

TRANSCENDENTAL = re.compile(
    r"(exp2?|expm1|log2?|log10|log1p|gelu|silu|tanh|sigmoid|log_sigmoid|softplus|mish|elu|erfc?"
    r"|sin|cos|tan|pow|r?sqrt)(_forward|_backward)?_?"
)
"""Names of elementwise ops that evaluate a special function of each element."""


class CostFunction(NamedTuple):
    """Closed form of one op, bound to the op's sizes."""

    kernel: Callable[..., Cycles]
    tokens: int | None
    """Tokens that the grid spreads over its PEs; None if the kernel spreads something else."""
    sizes: tuple[Any, ...]
    options: tuple[tuple[str, Any], ...]
    is_attention: bool = False

    def on(self, grid: Grid) -> CostFunction:
        """Return the function with the tokens rounded up to a full tile on every PE of ``grid``.

        The cost does not change: only the fullest PE counts. Ops whose tokens differ by less than a
        tile become equal, which makes results reusable.
        """
        if self.tokens is None:
            return self
        filled = grid.tokens(self.tokens) * grid.token_pes
        return self._replace(tokens=filled)

    def cycles(self, grid: Grid, dtype: str) -> Cycles:
        """Return the cost on a grid for elements of ``dtype``, a key of BYTES_PER_ELEMENT."""
        tokens = () if self.tokens is None else (self.tokens,)
        return self.kernel(grid, *tokens, *self.sizes, dtype, **dict(self.options))


def op_cycles(grid: Grid, work: OpWork, dtype: str, density: float = 1.0) -> Cycles:
    """Return the cost of one op of a captured graph.

    Args:
        grid: PEs that hold the op's tensors.
        work: Kind, name and sizes of the op.
        dtype: Element type, a key of BYTES_PER_ELEMENT.
        density: Share of non-zero weights, or of gradients that leave; only products with streamed
            weights and gradients of weights depend on it.

    Raises:
        ApplianceCompilationError: The op's kind has no cost function.
    """
    return cost_function_of(work, density).cycles(grid, dtype)


class KernelCosts(ABC):
    """Costs of your own for some kinds of ops, named by ``machine.system.kernel_costs``.

    Other kinds keep their closed forms, which ``op_cycles`` returns for a class to scale, too.
    """

    kinds: ClassVar[frozenset[str]]
    """Kinds of ops that the class has costs for: keys of COST_FUNCTIONS."""

    @abstractmethod
    def cycles(self, grid: Grid, work: OpWork, dtype: str, density: float) -> Cycles:
        """Return the cycles of one op of one of ``kinds``; arguments as of ``op_cycles``."""


@cache
def _own_costs(path: str) -> KernelCosts:
    own: type[KernelCosts] = import_derived(path, KernelCosts, "machine.system.kernel_costs")
    return own()


def cost_function_of(
    work: OpWork, density: float = 1.0, own_costs: str | None = None
) -> CostFunction:
    """Return the cost function of one op; errors as in ``op_cycles``.

    ``own_costs`` is the import path of a class derived from KernelCosts.
    """
    own = None if own_costs is None else _own_costs(own_costs)
    if own is not None and work.kind in own.kinds:
        return _bind(own.cycles, work, density=density)._replace(is_attention=is_attention(work))
    bind = COST_FUNCTIONS.get(work.kind)
    if bind is None:
        raise ApplianceCompilationError(
            f"op kind must be one with a cost function; got {work.kind!r}",
            code="op-kind-without-cost",
            where=work.op,
            value=work.kind,
            rule=f"kinds: {', '.join(sorted(COST_FUNCTIONS))}",
        )
    return bind(work, density)._replace(is_attention=is_attention(work))


def is_attention(work: OpWork) -> bool:
    """Return whether an op is attention, or a part of it where no single op is all of it.

    Parts are the ops that make scores, and products of activations with activations.
    """
    is_product = work.kind == "matmul" and not work.streams and work.shape[0] > 1
    return work.kind == "attention" or is_product or work.makes_scores


def _bind(
    kernel: Callable[..., Cycles], *sizes: Any, tokens: int | None = None, **options: Any
) -> CostFunction:
    return CostFunction(kernel, tokens, sizes, tuple(options.items()))


def _bind_tensor(
    kernel: Callable[..., Cycles], shape: Sequence[int], **options: Any
) -> CostFunction:
    """Bind a kernel over one tensor whose last dimension is the hidden one."""
    hidden = shape[-1] if shape else 1
    return _bind(_tensor_cycles, kernel, hidden, tokens=prod(shape[:-1]), **options)


def _over_tensor(kernel: Callable[..., Cycles]) -> Callable[[OpWork, float], CostFunction]:
    """Return what binds a kernel over the tensor of an op, whatever the density."""
    return lambda work, _: _bind_tensor(kernel, work.shape)


def _tensor_cycles(
    grid: Grid, tokens: int, kernel: Callable[..., Cycles], hidden: int, dtype: str, **options: Any
) -> Cycles:
    return kernel(grid, (tokens, hidden), dtype, **options)


def _matmul(work: OpWork, density: float) -> CostFunction:
    """Bind a product: of streamed weights, a weight gradient (batch 1), or resident operands.

    The solution of a triangular system counts as a product with the inverse.
    """
    batch, rows, inner, columns = work.shape
    if work.op == "linalg_solve_triangular":
        return _bind(triangular_solve, batch, rows, columns)
    if work.streams and work.op == "_grouped_mm":
        return _bind(_grouped_streaming, batch, inner, columns, tokens=rows, density=density)
    if work.streams:
        return _bind(weight_streaming, inner, columns, tokens=batch * rows, density=density)
    if batch == 1 and density < 1:
        return _bind(sparse_weight_gradient, rows, columns, tokens=inner, density=density)
    if batch == 1:
        return _bind(weight_gradient, rows, columns, tokens=inner)
    return _bind(resident_product, batch, rows, inner, columns)


def _grouped_streaming(
    grid: Grid, tokens: int, groups: int, inner: int, columns: int, dtype: str, density: float
) -> Cycles:
    """Return the cost of one streamed product per group of tokens, one after the other."""
    return weight_streaming(grid, tokens, inner, columns, dtype, density) * groups


def _convolution(work: OpWork, density: float) -> CostFunction:
    positions, patch, channels = work.shape
    if not work.streams:
        return _bind(spatial.resident_convolution, positions, patch, channels, op=work.op)
    return _bind(
        spatial.convolution, patch, channels, tokens=positions, op=work.op, density=density
    )


def _attention(work: OpWork, _: float) -> CostFunction:
    return _bind(tensors.attention, *work.shape, backward=_is_backward(work))


def _softmax(work: OpWork, _: float) -> CostFunction:
    if work.op.startswith("nll_loss"):
        return _bind_tensor(tensors.loss, work.shape)
    return _bind_tensor(tensors.softmax, work.shape, backward=_is_backward(work))


def _norm(work: OpWork, _: float) -> CostFunction:
    if work.op.startswith("native_batch_norm"):
        return _bind_tensor(spatial.batch_norm, work.shape, backward=_is_backward(work))
    return _bind_tensor(tensors.norm, work.shape, backward=_is_backward(work))


def _reduction(work: OpWork, _: float) -> CostFunction:
    # Tokens stay unbound: the number of results against the number of tokens selects the sums.
    return _bind(tensors.reduction, work.shape, results=work.flops)


def _elementwise(work: OpWork, _: float) -> CostFunction:
    if TRANSCENDENTAL.fullmatch(work.op):
        return _bind_tensor(tensors.transcendental, work.shape)
    return _bind_tensor(tensors.elementwise, work.shape)


def _view(_work: OpWork, _density: float) -> CostFunction:
    return _bind(_no_cycles)


def _no_cycles(_grid: Grid, _dtype: str) -> Cycles:
    return Cycles()


def _is_backward(work: OpWork) -> bool:
    return "backward" in work.op


COST_FUNCTIONS: Mapping[str, Callable[[OpWork, float], CostFunction]] = {
    "matmul": _matmul,
    "convolution": _convolution,
    "attention": _attention,
    "norm": _norm,
    "softmax": _softmax,
    "reduction": _reduction,
    "window": _over_tensor(spatial.windows),
    "gather": _over_tensor(tensors.gather),
    "random": _over_tensor(tensors.random),
    "copy": _over_tensor(tensors.copy),
    "elementwise": _elementwise,
    "view": _view,
}
"""How to bind the cost function of each op kind of ``waferstream.compiler.ops``."""
