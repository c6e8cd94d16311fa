"""Vector ops in memory: their values, and the cycles that they take.

``cycles = set-up + elements / rate(op, format)``, and ``bank_conflict_factor`` times the second
term when two different operands begin in one bank (timing model, section 2a).
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from csnode.fabric.dtypes import Array, Dtype, decode, encode
from csnode.fabric.instructions import Vector
from csnode.fabric.memory import Slice
from wsc.timing.hardware.fabric import FabricSpec

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


def vector_cycles(vector: Vector, spec: FabricSpec) -> int:
    """Cycles from issue to the next instruction."""
    operands = [x for x in (vector.left, vector.right, vector.third) if isinstance(x, Slice)]
    elements = max(x.count for x in (*operands, vector.out))
    vectors = {x for x in (*operands, vector.out) if x.count > 1}
    banks = [x.bank(spec.sram_banks) for x in vectors]
    conflict = spec.bank_conflict_factor if len(set(banks)) < len(banks) else 1.0
    per_element = _cycles_per_element(vector, spec)
    return spec.vector_setup_cycles + math.ceil(elements * per_element * conflict)


def fma_cycles(elements: int, dtype: Dtype, spec: FabricSpec) -> int:
    """Cycles of multiply-adds without set-up."""
    is_wide = dtype is Dtype.FP32
    return math.ceil(elements / (spec.fma_32bit_per_cycle if is_wide else spec.fma_16bit_per_cycle))


def _cycles_per_element(vector: Vector, spec: FabricSpec) -> float:
    is_wide = vector.left.dtype is Dtype.FP32
    if vector.op == "copy":
        return 1 / (spec.copy_32bit_per_cycle if is_wide else spec.copy_16bit_per_cycle)
    if vector.op in _UNARY:
        return spec.unary_cycles
    if vector.op in ("sum", "max"):
        return spec.serial_add_cycles
    return 1 / (spec.fma_32bit_per_cycle if is_wide else spec.fma_16bit_per_cycle)


class Memory:
    """The SRAM of all PEs: one row of bytes per PE, as long as the program needs."""

    def __init__(self, num_pes: int, used_bytes: int) -> None:
        self.words = np.zeros((num_pes, -(-used_bytes // 4)), dtype=np.uint32)
        self._halves = self.words.view(np.uint16)

    def read(self, pes: Array, where: Slice) -> Array:
        """fp32 [PEs, count]."""
        return decode(self.bits(pes, where), where.dtype)

    def bits(self, pes: Array, where: Slice) -> Array:
        """The raw elements [PEs, count]."""
        side = self.words if where.dtype is Dtype.FP32 else self._halves
        return side[pes[:, None], _columns(where)]

    def gather(self, pes: Array, where: Slice, offsets: Array, count: int) -> Array:
        """The raw elements [PEs, count] that begin ``offsets`` [PEs] elements into a slice."""
        side = self.words if where.dtype is Dtype.FP32 else self._halves
        first = where.address // where.dtype.num_bytes + offsets
        return side[pes[:, None], first[:, None] + np.arange(count)]

    def write(self, pes: Array, where: Slice, values: Array) -> None:
        """Round fp32 [PEs, count] (or what broadcasts to it) and store."""
        self.write_bits(pes, where, encode(values, where.dtype))

    def write_bits(self, pes: Array, where: Slice, bits: Array) -> None:
        """Store raw elements."""
        side = self.words if where.dtype is Dtype.FP32 else self._halves
        side[pes[:, None], _columns(where)] = bits

    def execute(self, pes: Array, vector: Vector) -> None:
        """Compute a vector op in many PEs at once."""
        left = self.read(pes, vector.left)
        right = vector.right
        other = self.read(pes, right) if isinstance(right, Slice) else np.float32(right or 0)
        with np.errstate(all="ignore"):
            if vector.op in _REDUCTIONS:
                result = _reduce(vector, left, other)
            elif vector.op == "fma":
                assert vector.third is not None, "checked by the program"
                wide = left.astype(np.float64) * other
                result = (wide + self.read(pes, vector.third)).astype(np.float32)
            elif vector.op in _UNARY:
                result = _UNARY[vector.op](left)
            else:
                result = _BINARY[vector.op](left, np.asarray(other))
        self.write(pes, vector.out, result)


def _reduce(vector: Vector, left: Array, right: Array | np.float32) -> Array:
    if vector.op == "max":
        return np.asarray(left.max(axis=1, keepdims=True))
    terms = left.astype(np.float64) * right if vector.op == "dot" else left
    total = np.zeros(left.shape[0], dtype=np.float32)
    for column in range(left.shape[1]):  # in the order of the hardware, one rounding per element
        total = decode(encode(terms[:, column] + total, vector.out.dtype), vector.out.dtype)
    return total[:, None]


def _columns(where: Slice) -> Array:
    first = where.address // where.dtype.num_bytes
    return first + where.stride * np.arange(where.count)
