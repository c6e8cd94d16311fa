"""Derive a step at any micro-batch size from captures at two sizes.

Every extent of a captured step is an affine function of the samples in a micro-batch. So are the
operations of an op, except those of products: theirs follow from the extents, because samples may
be multiplied with each other. Two captures therefore determine all other sizes, and a search over
micro-batch sizes or a curve over cluster sizes captures no more than twice. The derived programs
are for timing: they hold no kernels and no views, which take no time.

The smallest micro-batch, of a single sample or of a single group of samples that share a loss, is
an exception: of an extent of one, torch makes a view where it copies otherwise. So the step of such
a micro-batch is captured at its own size where a run records it so.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING, NamedTuple

from waferstream.core.errors import ApplianceCompilationError
from waferstream.core.program.micro_batches import SETTING
from waferstream.core.program.program import Program, TensorSpec
from waferstream.core.program.segment import ARITHMETIC_KINDS, Footprint, OpWork, Segment

if TYPE_CHECKING:
    from waferstream.compiler.compiled import Compiled  # it imports torch

CAPTURED_SIZES = (2, 4)
"""Groups of samples to capture at, samples where none share a loss; one would be simplified."""

Affine = Callable[[int, int], int]
"""Value at the wanted size, from the values at the smaller and at the larger captured size."""


class _Pair(NamedTuple):
    """An op as captured at both sizes."""

    small: OpWork
    large: OpWork


class _Work(NamedTuple):
    """The ops of all segments, each different one once, because layers repeat."""

    pairs: tuple[_Pair, ...]  # without views
    lists: tuple[tuple[int, ...], ...]  # indices of pairs: the ops of a segment in order
    of_segment: tuple[int, ...]  # index of its list


@dataclass(frozen=True)
class ScalableProgram:
    """A step captured at two micro-batch sizes; one captured once is there at that size alone.

    Raises ApplianceCompilationError if the two captures do not consist of the same ops.
    """

    small: Program
    large: Program

    def __post_init__(self) -> None:
        small, large = self.small, self.large
        if [s.layer for s in small.segments] != [s.layer for s in large.segments] or any(
            [work.op for work in a.work] != [work.op for work in b.work]
            for a, b in zip(small.segments, large.segments, strict=True)
        ):
            raise ApplianceCompilationError(
                "the ops of a step depend on the micro-batch size",
                code="ops-depend-on-micro-batch-size",
                value=f"{small.micro_batch_size} and {large.micro_batch_size} samples",
                remedy=f"set {SETTING} to an integer",
            )

    @classmethod
    def of(cls, small: Program, large: Program) -> ScalableProgram:
        """Return the step of two captures, with the footprints that follow from both.

        A single capture takes what depends on samples for memory that grows with them.
        """
        checked = cls(small, large)
        sizes = small.micro_batch_size, large.micro_batch_size
        pairs = zip(small.segments, large.segments, strict=True)
        a, b = zip(*(_with_footprints(*pair, sizes) for pair in pairs), strict=True)
        return replace(checked, small=replace(small, segments=a), large=replace(large, segments=b))

    @classmethod
    def at_one_size(cls, program: Program) -> ScalableProgram:
        """Return a step that is there at the size of its only capture."""
        return cls(program, program)

    @property
    def smallest(self) -> Program:
        """The step at the smaller captured size."""
        return self.at(self.small.micro_batch_size, 1)

    @property
    def parameter(self) -> dict[str, TensorSpec]:
        """Its parameters by name; no size changes them."""
        return self.small.parameter

    @cached_property
    def _work(self) -> _Work:
        pairs: dict[_Pair, int] = {}
        lists: dict[tuple[int, ...], int] = {}
        of_segment: list[int] = []
        for a, b in zip(self.small.segments, self.large.segments, strict=True):
            found = (_Pair(*ops) for ops in zip(a.work, b.work, strict=True))
            ops = [
                pairs.setdefault(pair, len(pairs)) for pair in found if pair.small.kind != "view"
            ]
            of_segment.append(lists.setdefault(tuple(ops), len(lists)))
        return _Work(tuple(pairs), tuple(lists), tuple(of_segment))

    def at(self, micro_batch_size: int, num_micro_batches: int) -> Program:
        """Return the program for ``num_micro_batches`` micro-batches of this size."""
        small = self.small
        samples = self.large.micro_batch_size - small.micro_batch_size
        more = micro_batch_size - small.micro_batch_size

        def affine(a: int, b: int) -> int:
            return a + (b - a) * more // samples if more else a

        pairs, lists, of_segment = self._work
        ops = [_op(pair, affine) for pair in pairs]
        works = [tuple([ops[index] for index in indices]) for indices in lists]
        return replace(
            small,
            digest=f"{small.digest}-{micro_batch_size}",
            inputs=tuple(
                replace(a, shape=tuple(map(affine, a.shape, b.shape)))
                for a, b in zip(small.inputs, self.large.inputs, strict=True)
            ),
            segments=tuple(
                replace(segment, work=works[index])
                for segment, index in zip(small.segments, of_segment, strict=True)
            ),
            micro_batch_size=micro_batch_size,
            num_micro_batches=num_micro_batches,
        )

    def changed(self, change: Callable[[Program], Program]) -> ScalableProgram:
        """Return the step after ``change``, which must move the same ops at both sizes."""
        return ScalableProgram(change(self.small), change(self.large))


def _with_footprints(a: Segment, b: Segment, sizes: tuple[int, int]) -> tuple[Segment, Segment]:
    """Return a segment as captured at two sizes with footprints that hold for both."""

    def line(small: Footprint, large: Footprint) -> Footprint:
        least, most = (each.of(size) for each, size in zip((small, large), sizes, strict=True))
        sample_bytes = max(0, most - least) // (sizes[1] - sizes[0])
        return Footprint(max(0, least - sizes[0] * sample_bytes), sample_bytes)

    working, blocked = line(a.working, b.working), line(a.blocked, b.blocked)
    stashes = zip(a.stash, b.stash, strict=True)
    footprints = [line(small.footprint, large.footprint) for small, large in stashes]

    def changed(segment: Segment) -> Segment:
        pieces = zip(segment.stash, footprints, strict=True)
        stash = tuple(replace(piece, footprint=footprint) for piece, footprint in pieces)
        return replace(segment, stash=stash, working=working, blocked=blocked)

    return changed(a), changed(b)


def _op(pair: _Pair, affine: Affine) -> OpWork:
    a, b = pair
    shape = tuple(map(affine, a.shape, b.shape))
    if a.kind in ARITHMETIC_KINDS and a.flops:
        flops = a.flops * prod(shape) // prod(a.shape)
    else:
        flops = affine(a.flops, b.flops)
    return a._replace(flops=flops, shape=shape)


def captured_sizes(group_size: int) -> tuple[int, int]:
    """Return the sizes to capture at a step whose groups of samples no micro-batch may cut."""
    small, large = CAPTURED_SIZES
    return small * group_size, large * group_size


def capture_both(capture: Callable[[int], Compiled], group_size: int = 1) -> ScalableProgram:
    """Capture a step at both sizes; ``capture`` compiles it at a given micro-batch size."""
    small, large = (capture(size).program for size in captured_sizes(group_size))
    return ScalableProgram.of(small, large)
