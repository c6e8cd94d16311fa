"""The same step at any micro-batch size, from two captures.

Every extent of a captured step is an affine function of the number of samples in a micro-batch.
So is how much an op does, but for products: their operations follow from their extents, as samples
may be multiplied with each other. Two captures therefore give all others; a search over micro-batch
sizes and a curve over cluster sizes capture no more than twice. What comes out is for the clock:
kernels are not there, nor are views, which take no time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from copy import copy
from dataclasses import replace
from math import prod

from wsc.compiler.compiled import Compiled
from wsc.core.errors import ApplianceCompilationError
from wsc.core.program import ARITHMETIC_KINDS, OpWork, Program, TensorSpec

CAPTURED_SIZES = (2, 4)
"""Micro-batch sizes to capture at; torch simplifies what has a single sample."""

Affine = Callable[[int, int], int]


class ScalableProgram:
    """A step that was captured at two micro-batch sizes.

    It is kept as it is at the smaller one, and what each of its ops and inputs is at the larger.
    """

    def __init__(self, small: Program, large: Program) -> None:
        if [s.layer for s in small.segments] != [s.layer for s in large.segments] or any(
            [work.op for work in a.work] != [work.op for work in b.work]
            for a, b in zip(small.segments, large.segments, strict=True)
        ):
            raise ApplianceCompilationError(
                "the ops of a step depend on the micro-batch size",
                value=f"{small.micro_batch_size} and {large.micro_batch_size} samples",
                remedy="set csx.performance.micro_batch_size to an integer",
            )
        shared: dict[tuple[OpWork, OpWork], OpWork] = {}  # one object for ops alike at both sizes

        def share(a: OpWork, b: OpWork) -> OpWork:
            if (a, b) not in shared:
                shared[a, b] = replace(a)
            return shared[a, b]

        works = (
            tuple(share(*ops) for ops in zip(a.work, b.work, strict=True) if ops[0].kind != "view")
            for a, b in zip(small.segments, large.segments, strict=True)
        )
        self._small = _with_works(small, works)
        self._samples = large.micro_batch_size - small.micro_batch_size
        self._ops = [(op, b) for (_, b), op in shared.items()]
        self._inputs = list(zip(small.inputs, large.inputs, strict=True))

    @property
    def parameter(self) -> dict[str, TensorSpec]:
        """Its parameters by name, which no size changes."""
        return self._small.parameter

    def at(self, micro_batch_size: int, num_micro_batches: int) -> Program:
        """The program for ``num_micro_batches`` micro-batches of this size.

        Segments of equal work share it.
        """
        small, samples = self._small, self._samples
        more = micro_batch_size - small.micro_batch_size

        def affine(a: int, b: int) -> int:
            return a + (b - a) * more // samples

        ops = {id(a): _op(a, b, affine) for a, b in self._ops}
        kinds = {id(segment.work): segment.work for segment in small.segments}
        works = {key: tuple([ops[id(op)] for op in work]) for key, work in kinds.items()}
        return replace(
            small,
            digest=f"{small.digest}-{micro_batch_size}",
            inputs=tuple(_input(a, b, affine) for a, b in self._inputs),
            segments=tuple(replace(s, work=works[id(s.work)]) for s in small.segments),
            micro_batch_size=micro_batch_size,
            num_micro_batches=num_micro_batches,
        )

    def changed(self, change: Callable[[Program], Program]) -> ScalableProgram:
        """The step after ops have been moved, which ``change`` does to it at any one size."""
        program = change(self._small)
        changed = copy(self)
        changed._small = _with_works(program, (segment.work for segment in program.segments))
        return changed


def _with_works(program: Program, works: Iterable[tuple[OpWork, ...]]) -> Program:
    """The program with these works; segments of the same ops share one object."""
    shared: dict[tuple[int, ...], tuple[OpWork, ...]] = {}
    segments = (
        replace(segment, work=shared.setdefault(tuple(map(id, work)), work))
        for segment, work in zip(program.segments, works, strict=True)
    )
    return replace(program, segments=tuple(segments))


def _op(a: OpWork, b: OpWork, affine: Affine) -> OpWork:
    shape = tuple(map(affine, a.shape, b.shape))
    if a.kind in ARITHMETIC_KINDS and a.flops:
        flops = a.flops * prod(shape) // prod(a.shape)
    else:
        flops = affine(a.flops, b.flops)
    return OpWork(a.op, a.kind, flops, shape, a.streams, a.reruns)


def _input(a: TensorSpec, b: TensorSpec, affine: Affine) -> TensorSpec:
    return replace(a, shape=tuple(map(affine, a.shape, b.shape)))


def capture_both(capture: Callable[[int], Compiled]) -> ScalableProgram:
    """From a function that captures a step at a micro-batch size."""
    small, large = (capture(size).program for size in CAPTURED_SIZES)
    return ScalableProgram(small, large)
