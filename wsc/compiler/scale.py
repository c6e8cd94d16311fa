"""The same step at any micro-batch size, from two captures.

Every shape, byte count and operation count of a captured step is an affine function of the number
of samples in a micro-batch, so two captures give all others; a search over micro-batch sizes and a
curve over cluster sizes then capture no more than twice. What comes out is for the clock: its
kernels are not there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from wsc.compiler.compiled import Compiled
from wsc.core.errors import ApplianceCompilationError
from wsc.core.program import OpWork, Program, TensorSpec

CAPTURED_SIZES = (2, 4)
"""Micro-batch sizes to capture at; torch simplifies what has a single sample."""

Affine = Callable[[int, int], int]


class ScalableProgram:
    """A step that was captured at two micro-batch sizes."""

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
        ops: dict[tuple[OpWork, OpWork], int] = {}
        known: dict[tuple[int, int], int] = {}  # the same by identity, which is faster
        kinds: dict[tuple[int, ...], int] = {}  # layers repeat, and so does their work

        def place(pair: tuple[OpWork, OpWork]) -> int:
            key = id(pair[0]), id(pair[1])
            if key not in known:
                known[key] = ops.setdefault(pair, len(ops))
            return known[key]

        self._kind_of_segment = [
            kinds.setdefault(tuple(map(place, zip(a.work, b.work, strict=True))), len(kinds))
            for a, b in zip(small.segments, large.segments, strict=True)
        ]
        self._ops, self._kinds = list(ops), list(kinds)
        self._small = self._sharing(small, [a for a, _ in self._ops])
        self._large = self._sharing(large, [b for _, b in self._ops])

    @property
    def parameter(self) -> dict[str, TensorSpec]:
        """Its parameters by name, which no size changes."""
        return self._small.parameter

    def at(self, micro_batch_size: int, num_micro_batches: int) -> Program:
        """The program for ``num_micro_batches`` micro-batches of this size."""
        small, large = self._small, self._large
        samples = large.micro_batch_size - small.micro_batch_size

        def affine(a: int, b: int) -> int:
            return a + (b - a) * (micro_batch_size - small.micro_batch_size) // samples

        works = self._works([_work(a, b, affine) for a, b in self._ops])
        return replace(
            small,
            digest=f"{small.digest}-{micro_batch_size}",
            inputs=tuple(
                _input(a, b, affine) for a, b in zip(small.inputs, large.inputs, strict=True)
            ),
            segments=tuple(
                replace(a, work=work, stash_bytes=affine(a.stash_bytes, b.stash_bytes))
                for a, b, work in zip(small.segments, large.segments, works, strict=True)
            ),
            micro_batch_size=micro_batch_size,
            num_micro_batches=num_micro_batches,
        )

    def changed(self, change: Callable[[Program], Program]) -> ScalableProgram:
        """The step after a change that is the same at any size."""
        return ScalableProgram(change(self._small), change(self._large))

    def _sharing(self, program: Program, ops: Sequence[OpWork]) -> Program:
        """The same program with one object for equal ops, and for equal works of segments."""
        works = zip(program.segments, self._works(ops), strict=True)
        return replace(
            program, segments=tuple(replace(segment, work=work) for segment, work in works)
        )

    def _works(self, ops: Sequence[OpWork]) -> list[tuple[OpWork, ...]]:
        """The work of each segment, made of these ops."""
        works = [tuple(ops[op] for op in kind) for kind in self._kinds]
        return [works[kind] for kind in self._kind_of_segment]


def _input(a: TensorSpec, b: TensorSpec, affine: Affine) -> TensorSpec:
    return replace(a, shape=tuple(map(affine, a.shape, b.shape)))


def _work(a: OpWork, b: OpWork, affine: Affine) -> OpWork:
    if a == b:
        return a
    return replace(
        a,
        flops=affine(a.flops, b.flops),
        num_bytes=affine(a.num_bytes, b.num_bytes),
        shape=tuple(map(affine, a.shape, b.shape)),
    )


def capture_both(capture: Callable[[int], Compiled]) -> ScalableProgram:
    """From a function that captures a step at a micro-batch size."""
    small, large = (capture(size).program for size in CAPTURED_SIZES)
    return ScalableProgram(small, large)
