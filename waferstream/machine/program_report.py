"""A compiled program as plain data: what ``--compile_only`` and ``--validate_only`` report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from waferstream.core.program.program import Program
from waferstream.core.program.schedule import SegmentStep, schedule_of
from waferstream.core.program.stream_plan import plan_streams
from waferstream.machine.hardware import MachineSpec
from waferstream.machine.sram import SramReport, plan_sram, sram_report


@dataclass(frozen=True)
class SegmentReport:
    """One segment of the schedule; ``flops`` and ``stash_bytes`` are of one micro-batch."""

    segment: str
    kernels: int
    flops: int
    weight_bytes: int
    gradient_bytes: int
    stash_bytes: int


@dataclass(frozen=True)
class ProgramReport:
    """A program; ``digest`` names its artifact, ``kernels`` counts the kernels by op kind."""

    mode: str
    digest: str
    was_cached: bool
    parameters: int
    stream_dtype: str
    batch_size: int
    micro_batch_size: int
    num_micro_batches: int
    kernels: Mapping[str, int]
    segments: tuple[SegmentReport, ...]
    sram: SramReport


def program_report(program: Program, machine: MachineSpec, *, was_cached: bool) -> ProgramReport:
    """Return the report of a program that fits a machine."""
    schedule = schedule_of(program, plan_streams(program, 1))
    kinds = Counter(work.kind for segment in program.segments for work in segment.work)
    del kinds[_NO_KERNEL]
    return ProgramReport(
        mode=program.kind,
        digest=program.digest,
        was_cached=was_cached,
        parameters=sum(spec.num_elements for spec in program.parameters),
        stream_dtype=program.stream_dtype,
        batch_size=program.batch_size,
        micro_batch_size=program.micro_batch_size,
        num_micro_batches=program.num_micro_batches,
        kernels=dict(sorted(kinds.items())),
        segments=tuple(_segment(program, step) for step in schedule),
        sram=sram_report(plan_sram(program, machine)),
    )


_NO_KERNEL = "view"
"""The op kind of what only names elements anew."""


def _segment(program: Program, step: SegmentStep) -> SegmentReport:
    work = program.segments[step.segment].work
    return SegmentReport(
        segment=step.label,
        kernels=sum(each.kind != _NO_KERNEL for each in work),
        flops=sum(each.flops for each in work),
        weight_bytes=sum(bucket.num_bytes for bucket in step.weights),
        gradient_bytes=sum(bucket.num_bytes for bucket in step.gradients),
        stash_bytes=step.stash.of(program.micro_batch_size),
    )
