"""The same step at any micro-batch size, from two captures.

Every shape, byte count and operation count of a captured step is an affine function of the number
of samples in a micro-batch, so two captures give all others; a search over micro-batch sizes and a
curve over cluster sizes then capture no more than twice. What comes out is for the clock: its
kernels are not there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from functools import cache
from typing import Any

from wsc.compiler.compiled import Compiled
from wsc.core.errors import ApplianceCompilationError
from wsc.core.program import OpWork, Program, Segment, TensorSpec

CAPTURED_SIZES = (2, 4)
"""Micro-batch sizes to capture at; torch simplifies what has a single sample."""

Affine = Callable[[int, int], int]

_WorkPair = tuple[tuple[OpWork, ...], tuple[OpWork, ...]]


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
        self._small = small
        self._large = large
        kinds: dict[_WorkPair, int] = {}  # layers repeat, and so does their work
        works = [(a.work, b.work) for a, b in zip(small.segments, large.segments, strict=True)]
        self._kind_of_segment = [kinds.setdefault(pair, len(kinds)) for pair in works]
        self._kinds = list(kinds)

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

        @cache  # so that equal ops are one object
        def work(a: OpWork, b: OpWork) -> OpWork:
            return _work(a, b, affine)

        works = [tuple(map(work, *pair)) for pair in self._kinds]
        return replace(
            small,
            digest=f"{small.digest}-{micro_batch_size}",
            inputs=tuple(
                _input(a, b, affine) for a, b in zip(small.inputs, large.inputs, strict=True)
            ),
            segments=tuple(
                replace(a, work=works[kind], **_numbers(a, b, affine))
                for a, b, kind in zip(
                    small.segments, large.segments, self._kind_of_segment, strict=True
                )
            ),
            micro_batch_size=micro_batch_size,
            num_micro_batches=num_micro_batches,
        )


def _input(a: TensorSpec, b: TensorSpec, affine: Affine) -> TensorSpec:
    return replace(a, shape=tuple(map(affine, a.shape, b.shape)))


def _work(a: OpWork, b: OpWork, affine: Affine) -> OpWork:
    return replace(a, shape=tuple(map(affine, a.shape, b.shape)), **_numbers(a, b, affine))


def _numbers(a: Segment | OpWork, b: Segment | OpWork, affine: Affine) -> dict[str, Any]:
    """All fields that are plain numbers, at the new size."""
    found = {field.name: (getattr(a, field.name), getattr(b, field.name)) for field in fields(a)}
    return {name: affine(*pair) for name, pair in found.items() if type(pair[0]) is int}


def capture_both(capture: Callable[[int], Compiled]) -> ScalableProgram:
    """From a function that captures a step at a micro-batch size."""
    small, large = (capture(size).program for size in CAPTURED_SIZES)
    return ScalableProgram(small, large)
