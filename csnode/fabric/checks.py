"""What an instruction must fulfil before a program takes it."""

from __future__ import annotations

from typing import get_args

from csnode.fabric.dtypes import Dtype
from csnode.fabric.instructions import (
    Axpy,
    Binary,
    Gather,
    Gemv,
    Instruction,
    Reduction,
    Stream,
    Vector,
)
from csnode.fabric.memory import Slice
from wsc.core.errors import ApplianceCompilationError

_NEEDS_RIGHT = {*get_args(Binary), "dot", "fma"}
_REDUCTIONS = set(get_args(Reduction))


def check_instruction(instruction: Instruction) -> None:
    """Raises ApplianceCompilationError when operands do not fit each other."""
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
            "a stream has no length",
            value=[f"{count} x {dtype.name}" for dtype, count in kinds],
            rule="an operand or a place to store, of one length and format if both; repeats >= 1",
        )
    if stream.operand is None and stream.receive is None:
        raise ApplianceCompilationError(
            "a stream has no source", rule="an operand in memory, or a colour to receive"
        )
    if stream.operand is not None and stream.operand.pitch:
        raise ApplianceCompilationError(
            "a stream cannot read columns of a matrix",
            where=f"array {stream.operand.array.name!r}",
            rule="an operand is one run; only what is stored may be columns",
        )
    for x in slices:
        packed = x.dtype.per_word
        pairs = (x.count, x.run, x.pitch)
        odd = any(number % packed for number in pairs)
        if odd or (packed > 1 and (x.stride > 1 or x.address % 4)):
            raise ApplianceCompilationError(
                "a stream is no whole number of words",
                where=f"array {x.array.name!r}",
                value=f"{x.count} x {x.dtype.name} from element {x.start}, stride {x.stride}",
                rule="16-bit elements travel in pairs: even start and count, stride 1",
                remedy="pad the array by one element",
            )


def _check_axpy(axpy: Axpy) -> None:
    too_wide = axpy.indexed and axpy.factors.dtype is Dtype.FP32
    if axpy.factors.count % axpy.sums.count or too_wide:
        raise ApplianceCompilationError(
            "an axpy cannot run",
            value=f"{axpy.factors.count} factors of {axpy.factors.dtype.name}, "
            f"{axpy.sums.count} sums, indexed: {axpy.indexed}",
            rule="factors are whole rows of sums; a weight with an index has 16 bits",
        )


def _check_gemv(gemv: Gemv) -> None:
    width, rest = divmod(gemv.sums.count, gemv.vectors)
    inner, rest_of_vector = divmod(gemv.vector.count, gemv.vectors)
    fits = not rest and not rest_of_vector and gemv.matrix.count == width * inner
    if not fits or gemv.matrix.dtype is not gemv.vector.dtype:
        raise ApplianceCompilationError(
            "a matrix does not fit its vector and sums",
            value=f"{gemv.matrix.count} elements, vector {gemv.vector.count}, "
            f"sums {gemv.sums.count}",
            rule="as many rows of a vector's sums as a vector has elements; one format",
        )


def _check_gather(gather: Gather) -> None:
    width, rest = divmod(gather.out.count, gather.index.count)
    if rest or gather.table.count % width or gather.table.dtype is not gather.out.dtype:
        raise ApplianceCompilationError(
            "rows cannot be gathered",
            value=f"{gather.index.count} rows of {gather.table.count} elements "
            f"into {gather.out.count}",
            rule="the result and the table are whole rows of one length and format",
        )


def _check_vector(vector: Vector) -> None:
    needed = (vector.op in _NEEDS_RIGHT, vector.op == "fma")
    given = (vector.right is not None, vector.third is not None)
    operands = [x for x in (vector.left, vector.right, vector.third) if isinstance(x, Slice)]
    length = max(x.count for x in operands)
    rest = length % vector.out.count if vector.op in _REDUCTIONS else vector.out.count - length
    if needed != given or rest or any(length % x.count for x in operands):
        raise ApplianceCompilationError(
            f"the operands of {vector.op!r} do not fit",
            value=f"{[x.count for x in operands]} elements into {vector.out.count}",
            rule="as many operands as the op has, each as long as the longest or a divisor of it; "
            "a reduction writes such a divisor, other ops the longest",
        )
