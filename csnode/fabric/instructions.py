"""What a PE can do: streams between fabric and memory, vector ops, and signals between threads.

Each is one line of a role's program. Lengths are in elements; colours are numbers from 0 on.
A stream takes one wavelet per cycle; a vector op takes its set-up and its elements over the rate.
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
    """One pass of 32-bit words: from memory and the fabric, to memory and the fabric.

    What arrives on ``receive`` is combined with ``operand`` if both are given. The result is
    written to ``store`` and leaves on ``send``. ``repeats`` walks over the slices again and again,
    which adds up as many streams in one op. ``advance`` moves the switch of the PE's own router on
    ``send`` behind the last wavelet. With ``ends_row`` the last wavelet is a control that ends an
    Axpy; its value means nothing.
    """

    operand: Slice | None = None
    receive: int | None = None
    store: Slice | None = None
    send: int | None = None
    combine: Combine = "add"
    repeats: int = 1
    advance: bool = False
    ends_row: bool = False


@dataclass(frozen=True)
class Control:
    """One control wavelet on ``send``: it moves the switch of every router that it passes.

    ``to_cores`` says whether PEs at the end of the route see it (it ends an Axpy) or not.
    """

    send: int
    to_cores: bool = False


@dataclass(frozen=True)
class Axpy:
    """Each wavelet on ``receive`` is a weight w: ``sums += w * factors[row]``, until a control.

    Sums begin at zero: the first weight's product is stored and those of others are added to it.
    ``factors`` holds rows of as many elements as ``sums``. With ``indexed``, a wavelet is a 16-bit
    weight (lower half) and its row (upper half), so zeros need not be sent; else the rows come in
    order from row 0 on and a wavelet is one weight in the format of the factors. The format of
    ``sums`` is that of the accumulation. It is a task bound to a colour: each weight pays for being
    triggered, and none for the set-up of a vector op.
    """

    receive: int
    factors: Slice
    sums: Slice
    indexed: bool = False


@dataclass(frozen=True)
class Vector:
    """A vector op in memory: ``out = op(left, right, third)``, element by element.

    An operand shorter than the longest, which it divides, is walked again and again; a number
    stands for a vector of it. Reductions add up ``out`` side by side, element i into element
    i mod ``out``; ``sum`` and ``dot`` round to the format of ``out`` after every addition. ``fma``
    is ``left * right + third``.
    """

    op: VectorOp
    out: Slice
    left: Slice
    right: Slice | float | None = None
    third: Slice | None = None


@dataclass(frozen=True)
class Gemv:
    """``sums += vector[k] * matrix[k]`` for all k: an axpy per element, in one mapped op.

    ``matrix`` holds a row of as many elements as ``sums`` for each element of ``vector``, in the
    vector's format; the format of ``sums`` is that of the accumulation. ``vectors`` of them, one
    after the other, make a product of matrices.
    """

    matrix: Slice
    vector: Slice
    sums: Slice
    vectors: int = 1


@dataclass(frozen=True)
class Gather:
    """``out[k] = table[index[k]]``, rows of a table picked by their numbers, a copy for each.

    A number outside the table picks zeros: the row is another PE's.
    """

    out: Slice
    table: Slice
    index: Slice


@dataclass(frozen=True)
class Signal:
    """Count up an event of this PE, from the next cycle on, for a thread that waits."""

    event: int


@dataclass(frozen=True)
class Wait:
    """Wait until an event of this PE was signalled, and take one signal off.

    One thread waits for one event.
    """

    event: int


@dataclass(frozen=True)
class Delay:
    """Let cycles pass, as scalar code does."""

    cycles: int


Instruction = Stream | Control | Axpy | Vector | Gemv | Gather | Signal | Wait | Delay


def send(operand: Slice, colour: int, *, advance: bool = False, ends_row: bool = False) -> Stream:
    """Memory to fabric."""
    return Stream(operand=operand, send=colour, advance=advance, ends_row=ends_row)


def receive(store: Slice, colour: int) -> Stream:
    """Fabric to memory."""
    return Stream(receive=colour, store=store)


def receive_forward(store: Slice, colour: int, onward: int) -> Stream:
    """Fabric to memory and on."""
    return Stream(receive=colour, store=store, send=onward)


def receive_add(into: Slice, colour: int, *, repeats: int = 1) -> Stream:
    """Add what arrives to memory; ``repeats`` streams of the same length."""
    return Stream(operand=into, receive=colour, store=into, repeats=repeats)


def receive_add_forward(
    operand: Slice, colour: int, onward: int, *, advance: bool = False
) -> Stream:
    """Add memory to what arrives and pass it on; memory keeps its value."""
    return Stream(operand=operand, receive=colour, send=onward, advance=advance)
