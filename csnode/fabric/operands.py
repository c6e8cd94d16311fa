"""Rules for the operands of instructions: their number, lengths and formats."""

from __future__ import annotations

from typing import get_args

from csnode.fabric.dtypes import Dtype
from csnode.fabric.instructions import (
    Axpy,
    Binary,
    Dots,
    Gather,
    Gemv,
    Instruction,
    Reduction,
    Stream,
    Vector,
)
from csnode.fabric.memory import Slice
from waferstream.core.errors import ApplianceCompilationError

_NEEDS_RIGHT = {*get_args(Binary), "dot", "fma"}
REDUCTIONS = set(get_args(Reduction))


def check_instruction(instruction: Instruction) -> None:
    """Raise ApplianceCompilationError if the operands of an instruction do not fit each other."""
    match instruction:
        case Stream():
            _check_stream(instruction)
        case Axpy():
            _check_axpy(instruction)
        case Dots():
            _check_dots(instruction)
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


def _check_dots(dots: Dots) -> None:
    if dots.rows.count % dots.vector.count or dots.rows.dtype is not dots.vector.dtype:
        raise ApplianceCompilationError(
            "the rows of dot products must be as long as their vector",
            code="dots-operands-mismatch",
            value=f"{dots.rows.count} elements of {dots.rows.dtype.name}, vector of "
            f"{dots.vector.count} {dots.vector.dtype.name}",
            rule="rows divide into vectors; one dtype",
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
    rest = length % vector.out.count if vector.op in REDUCTIONS else vector.out.count - length
    if needed != given or rest or any(length % x.count for x in operands):
        raise ApplianceCompilationError(
            f"the operands of {vector.op!r} must agree in number and length",
            code="vector-operands-mismatch",
            value=f"{[x.count for x in operands]} elements into {vector.out.count}",
            rule="one operand per argument of the op; every length divides the longest; the result "
            "of a reduction divides it too, other results equal it",
        )
