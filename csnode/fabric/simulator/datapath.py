"""Datapath of all PEs: values and cycles of vector ops in memory, and of triggered tasks.

``cycles = set-up + elements / rate(op, format)``, with ``bank_conflict_factor`` times the second
term when two different operands begin in one bank (timing model, section 2a). Rates are those of
``waferstream.machine.kernels.single_pe``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from csnode.fabric.dtypes import Array, Dtype, decode, encode, multiply_add
from csnode.fabric.instructions import Axpy, Dots, Gather, Gemv, Vector
from csnode.fabric.memory import Memory, Slice
from csnode.fabric.operands import REDUCTIONS
from csnode.fabric.simulator.activity import Recorder, Work
from csnode.fabric.simulator.instruction_table import Table
from csnode.fabric.simulator.threads import Threads
from waferstream.core.errors import ApplianceCompilationError
from waferstream.machine.hardware.fabric import FabricSpec
from waferstream.machine.kernels.single_pe import VectorOp, axpy_cycles, elements_per_cycle

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


def op_cycles(op: Vector | Gemv | Gather, spec: FabricSpec) -> int:
    """Return the cycles from the issue of an op to the next instruction."""
    if isinstance(op, Gemv):
        sums = _part(op.sums, 0, op.vectors)
        return spec.vector_setup_cycles + op.vector.count * weight_cycles(op.matrix, sums, spec)
    if isinstance(op, Gather):
        width = op.out.count // op.index.count
        rate = elements_per_cycle(spec, "copy", op.out.dtype.torch_name)
        return math.ceil(op.index.count * (spec.vector_setup_cycles + width / rate))
    operands = [x for x in (op.left, op.right, op.third) if isinstance(x, Slice)]
    elements = max(x.count for x in operands)
    if op.op in _UNARY and op.op != "copy":
        per_element = float(spec.unary_cycles)
    else:
        per_element = 1 / elements_per_cycle(spec, _rate_of(op), op.left.dtype.torch_name)
    vectors = {x for x in (*operands, op.out) if x.count > 1}
    work = elements * per_element * _conflict(vectors, spec)
    return spec.vector_setup_cycles + math.ceil(work)


def _rate_of(op: Vector) -> VectorOp:
    """Return the kind of vector op whose rate an op has, unless it is a function."""
    if op.op == "copy":
        return "copy"
    # Into one number each addition waits for the one before; into several others lie between.
    return "sum" if op.op in ("sum", "max") and op.out.count == 1 else "fma"


def weight_cycles(factors: Slice, sums: Slice, spec: FabricSpec) -> int:
    """Return the cycles of one multiply-add of a row of factors, triggered by its weight."""
    cycles = axpy_cycles(spec, sums.count, factors.dtype.torch_name)
    return math.ceil(cycles.compute * _conflict({factors, sums}, spec) + cycles.setup)


def _conflict(operands: set[Slice], spec: FabricSpec) -> float:
    banks = {x.bank(spec.sram_banks) for x in operands}
    return spec.bank_conflict_factor if len(banks) < len(operands) else 1.0


def compute(memory: Memory, pes: Array, op: Vector | Gemv | Gather) -> None:
    """Compute the values of one op in many PEs at once."""
    match op:
        case Gemv():
            _multiply(memory, pes, op)
        case Gather():
            _gather(memory, pes, op)
        case Vector():
            _vector(memory, pes, op)


def _multiply(memory: Memory, pes: Array, op: Gemv) -> None:
    weights = memory.bits(pes, op.vector)
    inner = op.vector.count // op.vectors
    for step in range(op.vector.count):
        number, row = divmod(step, inner)
        rows = np.full(pes.size, row)
        sums = _part(op.sums, number, op.vectors)
        add_weighted(memory, pes, weights[:, step], rows, op.matrix, sums)


def _part(whole: Slice, number: int, parts: int) -> Slice:
    """Return one of ``parts`` equal parts of a slice."""
    count = whole.count // parts
    return replace(whole, start=whole.start + number * count * whole.stride, count=count)


def _gather(memory: Memory, pes: Array, op: Gather) -> None:
    width = op.out.count // op.index.count
    table = memory.read(pes, op.table).reshape(pes.size, -1, width)
    index = memory.read(pes, op.index).astype(np.int64)
    is_here = (index >= 0) & (index < table.shape[1])
    rows = np.take_along_axis(table, np.where(is_here, index, 0)[:, :, None], axis=1)
    memory.write(pes, op.out, (rows * is_here[:, :, None]).reshape(pes.size, -1))


def _vector(memory: Memory, pes: Array, op: Vector) -> None:
    length = max(x.count for x in (op.left, op.right, op.third) if isinstance(x, Slice))
    left, other, third = (_operand(memory, pes, x, length) for x in (op.left, op.right, op.third))
    with np.errstate(all="ignore"):  # infinities and NaN are values, as on the hardware
        if op.op in REDUCTIONS:
            result = _reduce(op, left, other)
        elif op.op == "fma":
            result = (left.astype(np.float64) * other + third).astype(np.float32)
        elif op.op in _UNARY:
            result = _UNARY[op.op](left)
        else:
            result = _BINARY[op.op](left, other)
    memory.write(pes, op.out, result)


def _operand(memory: Memory, pes: Array, operand: Slice | float | None, length: int) -> Array:
    """Return an operand as fp32 [PEs, length], repeated as often as needed; zeros for none."""
    if isinstance(operand, Slice):
        return np.tile(memory.read(pes, operand), length // operand.count)
    return np.full((pes.size, length), operand or 0, dtype=np.float32)


def add_weighted(
    memory: Memory, pes: Array, weights: Array, rows: Array, factors: Slice, sums: Slice
) -> None:
    """Add ``weight * factors[row]`` to the sums, with the raw weight and the row of each PE."""
    width = sums.count
    chosen = memory.gather(pes, factors, rows.astype(np.int64) * width, width)
    before = memory.bits(pes, sums)
    after = multiply_add(weights[:, None], chosen, before, factors.dtype, sums.dtype)
    memory.write_bits(pes, sums, after)


def dot_products(memory: Memory, pes: Array, rows: Array, dots: Dots) -> Array:
    """Return the raw dot product [PEs, 1] of a row and the vector of each PE, in order."""
    length, dtype = dots.vector.count, dots.vector.dtype
    chosen = memory.gather(pes, dots.rows, rows.astype(np.int64) * length, length)
    vector = memory.bits(pes, dots.vector)
    total = np.zeros((pes.size, 1), dtype=dots.sums.dtype.raw)
    for k in range(length):
        pair = vector[:, k : k + 1], chosen[:, k : k + 1]
        total = multiply_add(*pair, total, dtype, dots.sums.dtype)
    return total


def _reduce(vector: Vector, left: Array, right: Array) -> Array:
    terms = left.astype(np.float64) * right if vector.op == "dot" else left
    terms = terms.reshape(left.shape[0], -1, vector.out.count)
    if vector.op == "max":
        return np.asarray(terms.max(axis=1))
    total = np.zeros((left.shape[0], vector.out.count), dtype=np.float32)
    for row in range(terms.shape[1]):  # in the order of the hardware, one rounding per element
        total = decode(encode(terms[:, row] + total, vector.out.dtype), vector.out.dtype)
    return total


class Datapath:
    """Datapath of each PE.

    ``busy_cycles`` int64 [PEs] also counts the cycles in which a core passes a word.
    """

    def __init__(
        self,
        spec: FabricSpec,
        table: Table,
        threads: Threads,
        memory: Memory,
        recorder: Recorder | None = None,
    ) -> None:
        self.busy_cycles = np.zeros(memory.words.shape[0], dtype=np.int64)
        self._spec, self._table, self._threads, self._memory = spec, table, threads, memory
        self._recorder = recorder
        self._free_at = np.zeros_like(self.busy_cycles)

    def is_free(self, threads: Array, now: int) -> Array:
        """Return whether the datapath of each thread's PE is free."""
        return np.asarray(self._free_at[self._threads.pe[threads]] <= now)

    def compute(self, threads: Array, now: int) -> None:
        """Start the vector ops that threads are at, for those whose PE is free."""
        for number, same in self._threads.by_instruction(self._starting(threads, now)):
            op = self._table.instructions[number]
            assert isinstance(op, Vector | Gemv | Gather)
            compute(self._memory, self._threads.pe[same], op)
            cycles = op_cycles(op, self._spec)
            self._occupy(same, now, cycles)
            self._threads.proceed(same, now + cycles)

    def clear_sums(self, threads: Array) -> None:
        """Zero the sums of an Axpy that begins.

        Takes no time, since the hardware stores the first product instead of adding it.
        """
        for number, same in self._threads.by_instruction(threads):
            task = self._table.instructions[number]
            if isinstance(task, Axpy):
                zero = np.zeros(1, dtype=task.sums.dtype.raw)
                self._memory.write_bits(self._threads.pe[same], task.sums, zero)

    def multiply(self, threads: Array, weights: Array, now: int) -> None:
        """Process one raw weight for the task of each thread, which then listens again."""
        for number in np.unique(self._threads.pc[threads]):
            same = self._threads.pc[threads] == number
            task = self._table.instructions[number]
            if isinstance(task, Dots):
                cycles = self._take_dots(threads[same], weights[same], task)
            else:
                assert isinstance(task, Axpy)
                cycles = self._add_weighted(threads[same], weights[same], task)
            self._threads.word[threads[same]] += 1
            self._occupy(threads[same], now, cycles)
            self._threads.agenda.add(threads[same], now + cycles)

    def _starting(self, threads: Array, now: int) -> Array:
        """Return the first thread of each free PE; schedule the others for when it may be free."""
        free_at = self._free_at[self._threads.pe[threads]]
        for time in np.unique(free_at[free_at > now]):
            self._threads.agenda.add(threads[free_at == time], int(time))
        threads = threads[free_at <= now]
        if not self._threads.several_per_pe:
            return threads
        first = self._threads.first_of_each_pe(threads)
        self._threads.agenda.add(threads[~first], now + 1)
        return threads[first]

    def _take_dots(self, threads: Array, weights: Array, dots: Dots) -> int:
        """Write the dot products that wavelets trigger; return the cycles of each."""
        rows = weights >> np.uint32(16)
        self._check_rows(threads, rows, dots.rows.count // dots.vector.count)
        pes, places = self._threads.pe[threads], self._threads.word[threads]
        found = dot_products(self._memory, pes, rows, dots)
        for place in np.unique(places):
            here = places == place
            one = _part(dots.sums, int(place), dots.sums.count)
            self._memory.write_bits(pes[here], one, found[here])
        return weight_cycles(dots.rows, dots.vector, self._spec)

    def _check_rows(self, threads: Array, rows: Array, num_rows: int) -> None:
        if int(rows.max()) >= num_rows:
            raise ApplianceCompilationError(
                "the row of a weight must exist in the operand that it multiplies",
                code="axpy-weight-without-row",
                where=self._threads.describe(int(threads[0])),
                value=f"row {int(rows.max())}",
                rule=f"rows 0 to {num_rows - 1}",
            )

    def _add_weighted(self, threads: Array, weights: Array, axpy: Axpy) -> int:
        """Add weighted rows to the sums of an Axpy; return the cycles of each."""
        rows = (weights >> np.uint32(16)) if axpy.indexed else self._threads.word[threads]
        self._check_rows(threads, rows, axpy.factors.count // axpy.sums.count)
        bits = weights if axpy.factors.dtype is Dtype.FP32 else weights.astype(np.uint16)
        add_weighted(self._memory, self._threads.pe[threads], bits, rows, axpy.factors, axpy.sums)
        return weight_cycles(axpy.factors, axpy.sums, self._spec)

    def note_words(self, pes: Array, arriving: Array, leaving: Array, now: int) -> None:
        """Count a cycle for each word that a core passes; threads of one PE may pass two."""
        np.add.at(self.busy_cycles, pes, 1)
        if self._recorder is not None:
            received = np.where(leaving, Work.PASS_ON, Work.RECEIVE)
            self._recorder.note_work(pes, now, 1, np.where(arriving, received, Work.SEND))

    def _occupy(self, threads: Array, now: int, cycles: int) -> None:
        pes = self._threads.pe[threads]
        self.busy_cycles[pes] += cycles
        self._free_at[pes] = now + cycles
        if self._recorder is not None:
            self._recorder.note_work(pes, now, cycles, Work.COMPUTE)
