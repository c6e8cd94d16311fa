"""Instructions of a PE; ``operands`` has the rules for their operands.

Streams between fabric and memory, vector ops, signals between threads. Lengths are in elements;
colours are numbers from 0. A stream takes one wavelet per cycle; a vector op takes its set-up and
its elements over the rate.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from csnode.fabric.dtypes import Combine
from csnode.fabric.memory import Slice

Unary = Literal["copy", "exp", "log", "rsqrt", "reciprocal", "tanh"]
Binary = Literal["add", "subtract", "multiply", "maximum"]
Reduction = Literal["sum", "max", "dot"]
VectorOp = Unary | Binary | Reduction | Literal["fma"]


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
class Dots:
    """Dot product per received wavelet: ``sums[k] = rows[row] . vector``, until a control wavelet.

    The k-th wavelet names its row in its upper half, as the indexed weights of an Axpy do. ``rows``
    are as long as ``vector``; products are added in the order of its elements, in the format of
    ``sums``. The instruction is a task bound to a colour, as an Axpy is, and runs at its rate.
    """

    receive: int
    rows: Slice
    vector: Slice
    sums: Slice


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


Instruction = Stream | Control | Axpy | Dots | Vector | Gemv | Gather | Signal | Wait | Delay


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
