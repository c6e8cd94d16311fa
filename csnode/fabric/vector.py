"""Vector ops in memory: their values, and the cycles that they take.

``cycles = set-up + elements / rate(op, format)``, and ``bank_conflict_factor`` times the second
term when two different operands begin in one bank (timing model, section 2a). Rates are those of
``wsc.timing.kernels.single_pe``.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from csnode.fabric.dtypes import Array, Dtype, decode, encode, multiply_add
from csnode.fabric.instructions import Gemv, Vector
from csnode.fabric.memory import Memory, Slice
from wsc.timing.hardware.fabric import FabricSpec
from wsc.timing.kernels.single_pe import VectorOp, axpy_cycles, elements_per_cycle

_UNARY: dict[str, Callable[[Array], Array]] = {
    "copy": np.positive,
    "exp": np.exp,
    "log": np.log,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "reciprocal": np.reciprocal,
    "tanh": np.tanh,
}
_BINARY: dict[str, Callable[[Array, Array], Array]] = {
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "maximum": np.maximum,
}
_REDUCTIONS = ("sum", "max", "dot")
_RATE_OF: dict[str, VectorOp] = {"copy": "copy", "sum": "sum", "max": "sum"}
"""Whose rate an op has; others run at that of a multiply-add, functions at ``unary_cycles``."""

_NAMES = {Dtype.FP32: "float32", Dtype.FP16: "float16", Dtype.BF16: "bfloat16"}


def op_cycles(op: Vector | Gemv, spec: FabricSpec) -> int:
    """Cycles from issue to the next instruction."""
    if isinstance(op, Gemv):
        return spec.vector_setup_cycles + op.vector.count * weight_cycles(op.matrix, op.sums, spec)
    operands = [x for x in (op.left, op.right, op.third) if isinstance(x, Slice)]
    elements = max(x.count for x in operands)
    if op.op in _UNARY and op.op != "copy":
        per_element = float(spec.unary_cycles)
    else:
        kind = _RATE_OF.get(op.op, "fma")
        per_element = 1 / elements_per_cycle(spec, kind, _NAMES[op.left.dtype])
    vectors = {x for x in (*operands, op.out) if x.count > 1}
    work = elements * per_element * _conflict(vectors, spec)
    return spec.vector_setup_cycles + math.ceil(work)


def weight_cycles(factors: Slice, sums: Slice, spec: FabricSpec) -> int:
    """Cycles of one multiply-add of a row of factors, triggered by its weight."""
    cycles = axpy_cycles(spec, sums.count, _NAMES[factors.dtype])
    return math.ceil(cycles.compute * _conflict({factors, sums}, spec) + cycles.setup)


def _conflict(operands: set[Slice], spec: FabricSpec) -> float:
    banks = {x.bank(spec.sram_banks) for x in operands}
    return spec.bank_conflict_factor if len(banks) < len(operands) else 1.0


def compute(memory: Memory, pes: Array, op: Vector | Gemv) -> None:
    """The values of one op in many PEs at once."""
    if isinstance(op, Gemv):
        weights = memory.bits(pes, op.vector)
        for row in range(op.vector.count):
            rows = np.full(pes.size, row)
            add_weighted(memory, pes, weights[:, row], rows, op.matrix, op.sums)
        return
    left = memory.read(pes, op.left)
    right = op.right
    other = memory.read(pes, right) if isinstance(right, Slice) else np.float32(right or 0)
    with np.errstate(all="ignore"):  # infinities and NaN are values, as on the hardware
        if op.op in _REDUCTIONS:
            result = _reduce(op, left, other)
        elif op.op == "fma":
            third = memory.read(pes, op.third) if op.third else np.float32(0)
            result = (left.astype(np.float64) * other + third).astype(np.float32)
        elif op.op in _UNARY:
            result = _UNARY[op.op](left)
        else:
            result = _BINARY[op.op](left, np.asarray(other))
    memory.write(pes, op.out, result)


def add_weighted(
    memory: Memory, pes: Array, weights: Array, rows: Array, factors: Slice, sums: Slice
) -> None:
    """``sums += weight * factors[row]`` with the weight (raw bits) and the row of each PE."""
    width = sums.count
    chosen = memory.gather(pes, factors, rows.astype(np.int64) * width, width)
    before = memory.bits(pes, sums)
    after = multiply_add(weights[:, None], chosen, before, factors.dtype, sums.dtype)
    memory.write_bits(pes, sums, after)


def _reduce(vector: Vector, left: Array, right: Array | np.float32) -> Array:
    if vector.op == "max":
        return np.asarray(left.max(axis=1, keepdims=True))
    terms = left.astype(np.float64) * right if vector.op == "dot" else left
    total = np.zeros(left.shape[0], dtype=np.float32)
    for column in range(left.shape[1]):  # in the order of the hardware, one rounding per element
        total = decode(encode(terms[:, column] + total, vector.out.dtype), vector.out.dtype)
    return total[:, None]
