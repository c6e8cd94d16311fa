"""SRAM of a PE: named arrays, their addresses and banks, and the contents of all PEs.

Every PE of a program has the same layout. Words of consecutive banks lie side by side: bits [3:1]
of an address name the bank (timing model, section 2a), so two operands that begin in one bank stay
in one bank at every step. ``Layout`` staggers arrays by one word each to keep them apart.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from csnode.fabric.dtypes import Array, Dtype, decode, encode
from waferstream.core.errors import ApplianceCompilationError, ApplianceResourceExhausted
from waferstream.core.units import format_bytes
from waferstream.machine.hardware.fabric import FabricSpec

_ROW_BYTES = 16
"""One word in each bank that a 4-byte element can begin in."""


@dataclass(frozen=True)
class Slice:
    """Operand: ``count`` elements of an array from ``start``, ``stride`` elements apart.

    With a ``pitch``, the operand is some columns of a matrix: ``run`` consecutive elements of each
    row, whose rows begin a pitch apart. Then count is a whole number of runs, and stride is 1::

        columns(2, 5, width=8)      row 0   . . x x x . . .     start 2, run 3, pitch 8
                                    row 1   . . x x x . . .
    """

    array: SramArray
    start: int
    count: int
    stride: int = 1
    run: int = 0
    pitch: int = 0

    @property
    def dtype(self) -> Dtype:
        """Format of the elements."""
        return self.array.dtype

    @property
    def address(self) -> int:
        """Byte address of the first element."""
        return self.array.address + self.start * self.dtype.num_bytes

    def bank(self, banks: int) -> int:
        """Return the bank of the first element."""
        return (self.address >> 1) % banks


@dataclass(frozen=True)
class SramArray:
    """Named array in every PE; ``array[2:6]`` is an operand."""

    name: str
    dtype: Dtype
    address: int
    length: int

    def __getitem__(self, index: slice) -> Slice:
        start, stop, step = index.indices(self.length)
        count = max(0, math.ceil((stop - start) / step))
        if step < 1 or count == 0:
            raise ApplianceCompilationError(
                "an operand must have at least one element",
                code="operand-empty",
                where=f"array {self.name!r} of {self.length} elements",
                value=f"[{index.start}:{index.stop}:{index.step}]",
                rule="start < stop, step >= 1",
            )
        return Slice(self, start, count, step)

    @property
    def whole(self) -> Slice:
        """Operand of all elements."""
        return self[:]

    def columns(self, start: int, stop: int, width: int) -> Slice:
        """Return columns of the array as a matrix with rows of ``width`` elements."""
        run = stop - start
        return Slice(self, start, self.length // width * run, run=run, pitch=width)


class Layout:
    """Allocator that places arrays one after the other in the SRAM of a PE."""

    def __init__(self, spec: FabricSpec) -> None:
        self.arrays: dict[str, SramArray] = {}
        self.used_bytes = 0
        self._spec = spec

    def allocate(
        self, name: str, length: int, dtype: Dtype = Dtype.FP32, bank: int | None = None
    ) -> SramArray:
        """Place an array in a given bank, or in the next bank that a word can begin in.

        Raises:
            ApplianceCompilationError: The name is taken, the length is below 1, or the bank is odd.
            ApplianceResourceExhausted: The arrays exceed the SRAM of a PE.
        """
        if name in self.arrays or length < 1:
            raise ApplianceCompilationError(
                f"array {name!r} must have a new name and at least one element",
                code="array-name-or-length",
                value=f"{length} elements",
                rule="names are unique in a PE; length >= 1",
            )
        num_bytes = length * dtype.num_bytes
        address = self._next_address(bank)
        if address + num_bytes > self._spec.sram_bytes_per_pe:
            raise ApplianceResourceExhausted(
                f"array {name!r} must fit into the SRAM of a PE",
                code="pe-sram-exceeded",
                value=f"{format_bytes(num_bytes)} after {format_bytes(self.used_bytes)} in use",
                rule=f"a PE has {format_bytes(self._spec.sram_bytes_per_pe)}",
                remedy="spread the array over more PEs, or use a 16-bit format",
            )
        array = SramArray(name, dtype, address, length)
        self.arrays[name] = array
        self.used_bytes = address + num_bytes
        return array

    def _next_address(self, bank: int | None) -> int:
        banks = self._spec.sram_banks
        if bank is not None and (bank % 2 or not 0 <= bank < banks):
            raise ApplianceCompilationError(
                f"the bank of an array must be even and exist; got {bank}",
                code="array-bank",
                value=bank,
                rule=f"even banks below {banks}: a 4-byte element covers two half-words",
            )
        row = -(-self.used_bytes // _ROW_BYTES) * _ROW_BYTES
        wanted = 2 * len(self.arrays) % banks if bank is None else bank
        return row + 2 * wanted


class Memory:
    """SRAM of all PEs: ``words`` uint32 [PEs, words], as long as the program needs."""

    def __init__(self, num_pes: int, used_bytes: int) -> None:
        self.words = np.zeros((num_pes, -(-used_bytes // 4)), dtype=np.uint32)
        self._halves = self.words.view(np.uint16)

    def read(self, pes: Array, where: Slice) -> Array:
        """Return the elements of a slice as fp32 [PEs, count]."""
        return decode(self.bits(pes, where), where.dtype)

    def bits(self, pes: Array, where: Slice) -> Array:
        """Return the raw elements of a slice [PEs, count]."""
        side = self.words if where.dtype is Dtype.FP32 else self._halves
        return side[pes[:, None], _columns(where)]

    def gather(self, pes: Array, where: Slice, offsets: Array, count: int) -> Array:
        """Return ``count`` raw elements per PE, from ``offsets`` [PEs] elements into a slice."""
        side = self.words if where.dtype is Dtype.FP32 else self._halves
        first = where.address // where.dtype.num_bytes + offsets
        return side[pes[:, None], first[:, None] + np.arange(count)]

    def write(self, pes: Array, where: Slice, values: Array) -> None:
        """Round fp32 values [PEs, count] (or what broadcasts to it) and store them."""
        self.write_bits(pes, where, encode(values, where.dtype))

    def write_bits(self, pes: Array, where: Slice, bits: Array) -> None:
        """Store raw elements."""
        side = self.words if where.dtype is Dtype.FP32 else self._halves
        side[pes[:, None], _columns(where)] = bits


def _columns(where: Slice) -> Array:
    first = where.address // where.dtype.num_bytes
    offsets = np.arange(where.count)
    if where.pitch:
        return first + offsets // where.run * where.pitch + offsets % where.run
    return first + where.stride * offsets
