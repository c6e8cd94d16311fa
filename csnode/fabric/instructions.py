"""Instructions of a PE, and the rules for their operands.

Streams between fabric and memory, vector ops, signals between threads. Lengths are in elements;
colours are numbers from 0. A stream takes one wavelet per cycle; a vector op takes its set-up and
its elements over the rate.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from csnode.fabric.dtypes import Combine, Dtype
from csnode.fabric.memory import Slice
from wsc.core.errors import ApplianceCompilationError

Unary = Literal["copy", "exp", "log", "rsqrt", "reciprocal", "tanh"]
Binary = Literal["add", "subtract", "multiply", "maximum"]
Reduction = Literal["sum", "max", "dot"]
VectorOp = Unary | Binary | Reduction | Literal["fma"]


_NEEDS_RIGHT = {*get_args(Binary), "dot", "fma"}
_REDUCTIONS = set(get_args(Reduction))


@dataclass(frozen=True)
class Stream:
    """One pass of 32-bit words from memory and the fabric, to memory and the fabric::

        receive --+                +--> store
                  +--- combine ----+
        operand --+                +--> send

    Words from ``receive`` are combined with ``operand`` if both are given. The result is written to
    ``store`` and leaves on ``send``. ``repeats`` runs over the slices several times, which adds up
    several streams in one op. ``advance`` moves the switch of the PE's own router on ``send`` after
    the last wavelet. With ``ends_row``, the last wavelet is a control that ends an Axpy; its value
    is ignored. A stream that ``continues`` the one before takes no set-up.
    """

    operand: Slice | None = None
    receive: int | None = None
    store: Slice | None = None
    send: int | None = None
    combine: Combine = "add"
    repeats: int = 1
    advance: bool = False
    ends_row: bool = False
    continues: bool = False


@dataclass(frozen=True)
class Control:
    """One control wavelet on ``send``: it moves the switch of every router that it passes.

    ``to_cores`` decides whether PEs at the end of the route receive it, which ends an Axpy.
    """

    send: int
    to_cores: bool = False


@dataclass(frozen=True)
class Axpy:
    """Multiply-add per received weight w: ``sums += w * factors[row]``, until a control wavelet.

    Sums begin at zero: the product of the first weight is stored, later ones are added. ``factors``
    holds rows as long as ``sums``. With ``indexed``, a wavelet is a 16-bit weight (lower half) and
    its row (upper half), so zeros need not be sent; otherwise the rows come in order from row 0,
    and a wavelet is one weight in the format of the factors. The format of ``sums`` is that of the
    accumulation. The instruction is a task bound to a colour: each weight pays for being triggered,
    and none for the set-up of a vector op.
    """

    receive: int
    factors: Slice
    sums: Slice
    indexed: bool = False


@dataclass(frozen=True)
class Vector:
    """Vector op in memory: ``out = op(left, right, third)``, element by element.

    An operand shorter than the longest one, whose length it divides, is repeated; a number stands
    for a vector of it. Reductions combine element i into element i mod ``out``; ``sum`` and ``dot``
    round to the format of ``out`` after every addition. ``fma`` is ``left * right + third``.
    """

    op: VectorOp
    out: Slice
    left: Slice
    right: Slice | float | None = None
    third: Slice | None = None


@dataclass(frozen=True)
class Gemv:
    """Matrix-vector product ``sums += vector[k] * matrix[k]``: one mapped op, an axpy per k.

    ``matrix`` holds a row as long as ``sums`` for each element of ``vector``, in the vector's
    format; the format of ``sums`` is that of the accumulation. ``vectors`` of them, one after the
    other, make a product of matrices.
    """

    matrix: Slice
    vector: Slice
    sums: Slice
    vectors: int = 1


@dataclass(frozen=True)
class Gather:
    """Copies of table rows: ``out[k] = table[index[k]]``, one copy per row.

    An index outside the table gives zeros: the row belongs to another PE.
    """

    out: Slice
    table: Slice
    index: Slice


@dataclass(frozen=True)
class Signal:
    """Count up an event of this PE, from the next cycle on, for a waiting thread."""

    event: int


@dataclass(frozen=True)
class Wait:
    """Wait until an event of this PE is signalled, and count it down.

    At most one thread waits for an event.
    """

    event: int


@dataclass(frozen=True)
class Delay:
    """Wait for some cycles, as scalar code does."""

    cycles: int


Instruction = Stream | Control | Axpy | Vector | Gemv | Gather | Signal | Wait | Delay


def send(
    operand: Slice,
    colour: int,
    *,
    advance: bool = False,
    ends_row: bool = False,
    continues: bool = False,
) -> Stream:
    """Return a stream from memory to fabric."""
    return Stream(
        operand=operand, send=colour, advance=advance, ends_row=ends_row, continues=continues
    )


def receive(store: Slice, colour: int) -> Stream:
    """Return a stream from fabric to memory."""
    return Stream(receive=colour, store=store)


def receive_forward(store: Slice, colour: int, onward: int) -> Stream:
    """Return a stream from fabric to memory and on."""
    return Stream(receive=colour, store=store, send=onward)


def receive_add(into: Slice, colour: int, *, repeats: int = 1) -> Stream:
    """Return a stream that is added to memory; ``repeats`` streams of the same length."""
    return Stream(operand=into, receive=colour, store=into, repeats=repeats)


def receive_add_forward(
    operand: Slice, colour: int, onward: int, *, advance: bool = False
) -> Stream:
    """Return a stream to which memory is added and that is passed on; memory keeps its value."""
    return Stream(operand=operand, receive=colour, send=onward, advance=advance)


def check_instruction(instruction: Instruction) -> None:
    """Raise ApplianceCompilationError if the operands of an instruction do not fit each other."""
    match instruction:
        case Stream():
            _check_stream(instruction)
        case Axpy():
            _check_axpy(instruction)
        case Gemv():
            _check_gemv(instruction)
        case Gather():
            _check_gather(instruction)
        case Vector():
            _check_vector(instruction)


def _check_stream(stream: Stream) -> None:
    slices = [x for x in (stream.operand, stream.store) if x is not None]
    kinds = {(x.dtype, x.count) for x in slices}
    if len(kinds) != 1 or stream.repeats < 1:
        raise ApplianceCompilationError(
            "a stream's operand and store must have one dtype and length",
            code="stream-operands-mismatch",
            value=[f"{count} x {dtype.name}" for dtype, count in kinds],
            rule="an operand, a store, or both with equal dtype and length; repeats >= 1",
        )
    if stream.operand is None and stream.receive is None:
        raise ApplianceCompilationError(
            "a stream must have a source",
            code="stream-without-source",
            rule="an operand in memory, a colour to receive, or both",
        )
    if stream.operand is not None and stream.operand.pitch:
        raise ApplianceCompilationError(
            "the operand of a stream must be contiguous or strided; got columns of a matrix",
            code="stream-reads-columns",
            where=f"array {stream.operand.array.name!r}",
            rule="an operand has one run; only a store may be columns of a matrix",
        )
    for x in slices:
        packed = x.dtype.per_word
        pairs = (x.count, x.run, x.pitch)
        odd = any(number % packed for number in pairs)
        if odd or (packed > 1 and (x.stride > 1 or x.address % 4)):
            raise ApplianceCompilationError(
                "a stream must be a whole number of 32-bit words",
                code="stream-partial-word",
                where=f"array {x.array.name!r}",
                value=f"{x.count} x {x.dtype.name} from element {x.start}, stride {x.stride}",
                rule="16-bit elements travel in pairs: even start and count, stride 1",
                remedy="pad the array by one element",
            )


def _check_axpy(axpy: Axpy) -> None:
    too_wide = axpy.indexed and axpy.factors.dtype is Dtype.FP32
    if axpy.factors.count % axpy.sums.count or too_wide:
        raise ApplianceCompilationError(
            "the factors of an axpy must be whole rows of its sums",
            code="axpy-operands-mismatch",
            value=f"{axpy.factors.count} factors of {axpy.factors.dtype.name}, "
            f"{axpy.sums.count} sums, indexed: {axpy.indexed}",
            rule="factors divide into rows as long as the sums; an indexed weight has 16 bits",
        )


def _check_gemv(gemv: Gemv) -> None:
    width, rest = divmod(gemv.sums.count, gemv.vectors)
    inner, rest_of_vector = divmod(gemv.vector.count, gemv.vectors)
    fits = not rest and not rest_of_vector and gemv.matrix.count == width * inner
    if not fits or gemv.matrix.dtype is not gemv.vector.dtype:
        raise ApplianceCompilationError(
            "the matrix of a gemv must have a row of sums per element of its vector",
            code="gemv-operands-mismatch",
            value=f"{gemv.matrix.count} elements, vector {gemv.vector.count}, "
            f"sums {gemv.sums.count}",
            rule="matrix elements = elements of one vector x sums of one vector; one dtype",
        )


def _check_gather(gather: Gather) -> None:
    width, rest = divmod(gather.out.count, gather.index.count)
    if rest or gather.table.count % width or gather.table.dtype is not gather.out.dtype:
        raise ApplianceCompilationError(
            "the table and the result of a gather must be rows of one length",
            code="gather-operands-mismatch",
            value=f"{gather.index.count} rows of {gather.table.count} elements "
            f"into {gather.out.count}",
            rule="result and table are whole rows of one length and dtype",
        )


def _check_vector(vector: Vector) -> None:
    needed = (vector.op in _NEEDS_RIGHT, vector.op == "fma")
    given = (vector.right is not None, vector.third is not None)
    operands = [x for x in (vector.left, vector.right, vector.third) if isinstance(x, Slice)]
    length = max(x.count for x in operands)
    rest = length % vector.out.count if vector.op in _REDUCTIONS else vector.out.count - length
    if needed != given or rest or any(length % x.count for x in operands):
        raise ApplianceCompilationError(
            f"the operands of {vector.op!r} must agree in number and length",
            code="vector-operands-mismatch",
            value=f"{[x.count for x in operands]} elements into {vector.out.count}",
            rule="one operand per argument of the op; every length divides the longest; the result "
            "of a reduction divides it too, other results equal it",
        )
