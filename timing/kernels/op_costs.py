"""The closed form for each family of ops of a captured graph."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any, NamedTuple

from timing.kernels import tensors
from timing.kernels.grid import Cycles, Grid
from timing.kernels.resident import resident_product, weight_gradient
from timing.kernels.streaming import weight_streaming
from wsc.core.errors import ApplianceCompilationError
from wsc.core.program import OpWork


class Form(NamedTuple):
    """A closed form with the numbers of an op. Many ops have the same, and so the same cost."""

    kernel: Callable[..., Cycles]
    tokens: int | None
    """Those that are spread over the PEs of a grid; None if the form spreads something else."""
    numbers: tuple[Any, ...]
    options: tuple[tuple[str, Any], ...]

    def on(self, grid: Grid) -> Form:
        """The same with as many tokens on every PE as on the fullest, which alone counts."""
        if self.tokens is None:
            return self
        filled = grid.tokens(self.tokens) * grid.token_pes
        return Form(self.kernel, filled, self.numbers, self.options)

    def cycles(self, grid: Grid, dtype: str) -> Cycles:
        """What the op costs on a grid; ``dtype``, a name of BYTES_PER_ELEMENT, of its elements."""
        tokens = () if self.tokens is None else (self.tokens,)
        return self.kernel(grid, *tokens, *self.numbers, dtype, **dict(self.options))


TRANSCENDENTAL = re.compile(
    r"(exp2?|expm1|log2?|log10|log1p|gelu|silu|tanh|sigmoid|log_sigmoid|softplus|mish|elu|erfc?"
    r"|sin|cos|tan|pow|r?sqrt)(_forward|_backward)?_?"
)
"""Elementwise ops with a special function of each element."""


def op_cycles(grid: Grid, work: OpWork, dtype: str, density: float = 1.0) -> Cycles:
    """What one op of a captured graph costs; ``dtype`` as for its form, errors as of ``form_of``.

    ``density`` is the share of non-zero weights, which only products with streamed weights feel.
    """
    return form_of(work, density).cycles(grid, dtype)


def form_of(work: OpWork, density: float = 1.0) -> Form:
    """The form of one op; ApplianceCompilationError for an unknown family."""
    family = KERNELS.get(work.kind)
    if family is None:
        raise ApplianceCompilationError(
            "an op has no cost on the emulated clock",
            where=work.op,
            value=work.kind,
            rule=f"kinds: {', '.join(sorted(KERNELS))}",
        )
    return family(work, density)


def _form(
    kernel: Callable[..., Cycles], *numbers: Any, tokens: int | None = None, **options: Any
) -> Form:
    return Form(kernel, tokens, numbers, tuple(options.items()))


def _over(tensor: Callable[..., Cycles], shape: Sequence[int], **options: Any) -> Form:
    """The form of an op over a tensor, the last dimension of which is the hidden one."""
    hidden = shape[-1] if shape else 1
    return _form(_of_tokens, tensor, hidden, tokens=prod(shape[:-1]), **options)


def _of_tokens(
    grid: Grid, tokens: int, tensor: Callable[..., Cycles], hidden: int, dtype: str, **options: Any
) -> Cycles:
    return tensor(grid, (tokens, hidden), dtype, **options)


def _matmul(work: OpWork, density: float) -> Form:
    """Streamed weights, a weight gradient (a single product of resident operands), or many."""
    batch, rows, inner, columns = work.shape
    if work.streams:
        return _form(weight_streaming, inner, columns, tokens=batch * rows, density=density)
    if batch == 1:
        return _form(weight_gradient, rows, columns, tokens=inner)
    return _form(resident_product, batch, rows, inner, columns)


def _attention(work: OpWork, _: float) -> Form:
    return _form(tensors.attention, *work.shape, backward=_is_backward(work))


def _softmax(work: OpWork, _: float) -> Form:
    if work.op.startswith("nll_loss"):
        return _over(tensors.loss, work.shape)
    return _over(tensors.softmax, work.shape, backward=_is_backward(work))


def _norm(work: OpWork, _: float) -> Form:
    return _over(tensors.norm, work.shape, backward=_is_backward(work))


def _reduction(work: OpWork, _: float) -> Form:
    """Which sums there are depends on the number of results beside that of tokens."""
    return _form(tensors.reduction, work.shape, results=work.flops)


def _gather(work: OpWork, _: float) -> Form:
    return _over(tensors.gather, work.shape)


def _copy(work: OpWork, _: float) -> Form:
    return _over(tensors.copy, work.shape)


def _random(work: OpWork, _: float) -> Form:
    return _over(tensors.elementwise, work.shape, passes=tensors.RANDOM_PASSES)


def _elementwise(work: OpWork, _: float) -> Form:
    if TRANSCENDENTAL.fullmatch(work.op):
        return _over(tensors.transcendental, work.shape)
    return _over(tensors.elementwise, work.shape)


def _view(_work: OpWork, _density: float) -> Form:
    return _form(_nothing_moves)


def _nothing_moves(_grid: Grid, _dtype: str) -> Cycles:
    return Cycles()


def _is_backward(work: OpWork) -> bool:
    return "backward" in work.op


KERNELS: Mapping[str, Callable[[OpWork, float], Form]] = {
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
