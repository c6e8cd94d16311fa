"""Segments as data: the work of their ops, and the wafer memory that they take."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

Phase = Literal["forward", "backward"]

ARITHMETIC_KINDS = frozenset({"matmul", "convolution", "attention"})
"""Op kinds whose operations count as the model's arithmetic."""


class OpWork(NamedTuple):
    """The work of one op, as far as the timing models need it: kind and size.

    ``kind`` is an op kind of waferstream.compiler.ops ("matmul", "elementwise", "view", ...);
    ``flops`` counts multiply and add as two. ``shape`` is the loop nest of the kernel,
    outermost first:

        matmul       (batch, rows, inner, columns): rows x inner times inner x columns
        convolution  (positions, patch, channels): positions x patch times patch x channels
        attention    (batch x heads, queries, keys, head size)
        window       the windows that the kernel reads, side by side
        others       the shape of the (first) result; of reductions, norms, softmax and losses that
                     of the first operand, which is a scalar where a loss passes its gradient back

    ``streams`` says that an operand is a weight which triggers the work as it arrives, ``reruns``
    that recomputing the op's layer runs it a second time, ``makes_scores`` that its result is
    scores of attention, between two products of activations.

    There is no dtype: all ops are costed in the dtype of the stream, for the reason given in
    timing.cost.
    """

    op: str
    kind: str
    flops: int
    shape: tuple[int, ...] = ()
    streams: bool = False
    reruns: bool = False
    makes_scores: bool = False


@dataclass(frozen=True)
class Footprint:
    """SRAM of a micro-batch: a fixed number of bytes, and bytes for each of its samples."""

    fixed_bytes: int = 0
    sample_bytes: int = 0

    def __add__(self, other: Footprint) -> Footprint:
        return Footprint(
            self.fixed_bytes + other.fixed_bytes, self.sample_bytes + other.sample_bytes
        )

    def __sub__(self, other: Footprint) -> Footprint:
        return Footprint(
            self.fixed_bytes - other.fixed_bytes, self.sample_bytes - other.sample_bytes
        )

    def covering(self, other: Footprint) -> Footprint:
        """Return the smallest footprint that covers both."""
        return Footprint(
            max(self.fixed_bytes, other.fixed_bytes), max(self.sample_bytes, other.sample_bytes)
        )

    def of(self, samples: int) -> int:
        """Return the bytes of a micro-batch of ``samples`` samples."""
        return self.fixed_bytes + samples * self.sample_bytes


@dataclass(frozen=True)
class Stash:
    """One piece of memory that a segment keeps for later ones; ``values`` are all views of it.

    A wafer need not keep every piece for the backward pass of the same layer. One that is *remade*
    comes again from pieces that are kept, by an elementwise op or a norm, where it is read. One
    that is *blocked* holds scores of attention, which are made a block of queries at a time.
    """

    values: tuple[str, ...]
    footprint: Footprint
    held: Literal["whole", "remade", "blocked"] = "whole"


@dataclass(frozen=True)
class Segment:
    """A run of ops of one layer in one direction, with its inputs, stash and outputs.

    ``inputs`` are values of the batch or of earlier segments, ``outputs`` the values that later
    segments read, ``drops`` the values no later segment reads. ``results`` are positions in the
    step's outputs (the loss first) paired with the value that holds them.

    ``stash`` is the memory behind those ``outputs`` that the segment makes, each piece once;
    ``working`` is an upper bound of the memory that its values, outputs included, take at any time,
    ``blocked`` that of the scores of attention, of which a wafer has but a block at a time.
    Gradients are not part of ``working``: like weights, they stream.

    A wafer that has no room for a micro-batch runs the segment in ``blocks``, one after the other,
    or ``with_head``, a part of a sample at a time (waferstream.machine.sram.blocks).
    """

    index: int
    phase: Phase
    layer: str
    weights: tuple[str, ...]
    gradients: tuple[str, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    drops: tuple[str, ...]
    results: tuple[tuple[int, str], ...]
    work: tuple[OpWork, ...]
    stash: tuple[Stash, ...] = ()
    working: Footprint = Footprint()
    blocked: Footprint = Footprint()
    blocks: int = 1
    with_head: bool = False

    @property
    def stash_footprint(self) -> Footprint:
        """SRAM of all pieces of the stash together."""
        return sum((piece.footprint for piece in self.stash), Footprint())
