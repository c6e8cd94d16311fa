"""Plan the SRAM of a wafer: whether a micro-batch fits, and what must be recomputed for it."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from waferstream.core.errors import ApplianceResourceExhausted
from waferstream.core.program.micro_batches import Cut
from waferstream.core.program.program import Program
from waferstream.core.units import counted, format_bytes
from waferstream.machine.hardware import MachineSpec, WaferSpec
from waferstream.machine.sram.blocks import fewest_blocks, moments_in_blocks, run_with_head
from waferstream.machine.sram.paging import Page, Paging, without_pages
from waferstream.machine.sram.recompute import capacities, recomputable, recompute
from waferstream.machine.sram.space import Moment, buffer_bytes, data_bytes


@dataclass(frozen=True)
class Overflow:
    """Bytes of a micro-batch for which a machine has no room, with all recomputed and away."""

    segment: str
    """Layer and phase at the peak of SRAM."""
    sram_bytes: int
    server_bytes: int
    """Activations that the activation servers of a system cannot hold."""


@dataclass(frozen=True)
class SramPlan:
    """What lies in the SRAM of a wafer while it runs a program.

    ``recomputed`` are the forward segments that it runs twice. ``paging`` knows which activations
    are away at which segments, if they have no room; ``buffers`` has the bytes that streams take at
    each segment.
    """

    program: Program
    machine: MachineSpec
    recomputed: tuple[int, ...]
    paging: Paging
    buffers: tuple[int, ...]

    @classmethod
    def of(
        cls, program: Program, machine: MachineSpec, recomputed: tuple[int, ...] = ()
    ) -> SramPlan:
        """Plan the SRAM for a program in which these segments are recomputed already."""
        buffers = buffer_bytes(program, machine.system)
        return cls(program, machine, recomputed, Paging.of(program, machine, buffers), buffers)

    def with_program(self, program: Program) -> SramPlan:
        """Return the plan for the same step at another micro-batch size.

        Pages and buffers stay: they are given per sample, or do not depend on the samples.
        """
        return replace(self, program=program)

    @property
    def wafer(self) -> WaferSpec:
        """The system of the plan."""
        return self.machine.system

    @cached_property
    def pages(self) -> tuple[Page, ...]:
        """Activations that go to activation servers: as few as it takes."""
        return self.paging.for_samples(self.program.micro_batch_size)

    @cached_property
    def moments(self) -> tuple[Moment, ...]:
        """SRAM at each segment of a micro-batch, in order, without the pages that are away."""
        return moments_in_blocks(self.program, without_pages(self.paging.moments, self.pages))

    def in_blocks(self) -> SramPlan:
        """Return the plan in which segments without room run in as few blocks as that takes.

        A plan that fits stays as it is, and so does one that would not fit in any blocks.
        """
        if self.fits:
            return self
        program, plan = run_with_head(self.program), self
        if program is not self.program:
            plan = SramPlan.of(program, self.machine, self.recomputed)
        room = [data_bytes(plan.wafer) - buffers for buffers in plan.buffers]
        blocks = fewest_blocks(program, plan.moments, room)
        pairs = zip(program.segments, blocks, strict=True)
        segments = tuple(replace(segment, blocks=count) for segment, count in pairs)
        found = plan.with_program(replace(program, segments=segments))
        return found if found.fits else self

    @property
    def runs_in_blocks(self) -> bool:
        """Whether some segment runs on a part of a micro-batch at a time."""
        return any(segment.blocks > 1 for segment in self.program.segments)

    def bytes_at(self, moment: Moment) -> int:
        """Return the bytes of activations and stream buffers at a moment of the step."""
        samples = self.program.micro_batch_size
        return moment.footprint.of(samples) + self.buffers[moment.segment]

    @cached_property
    def peak(self) -> Moment:
        """The first moment with the most bytes in SRAM."""
        return max(self.moments, key=self.bytes_at)

    @property
    def peak_bytes(self) -> int:
        """Bytes in SRAM at the peak, without code."""
        return self.bytes_at(self.peak)

    @property
    def fits(self) -> bool:
        """Whether the peak fits the SRAM left for data, and the pages fit their servers."""
        if not self.runs_in_blocks:
            return self.program.micro_batch_size <= self.paging.largest
        has_room = self.peak_bytes <= data_bytes(self.wafer)
        return has_room and self.away_bytes <= self.machine.activations.total_bytes

    @property
    def largest(self) -> int:
        """Most samples that fit whole; one, if that fits in blocks alone; else 0."""
        return self.paging.largest or int(self._fits_in_blocks(1))

    def largest_up_to(self, samples: int) -> int:
        """Return the most samples that fit, in blocks if need be; 0 if one sample does not."""
        sizes = range(1, samples + 1)
        return bisect_left(sizes, x=True, key=lambda size: not self._fits_in_blocks(size))

    def _fits_in_blocks(self, samples: int) -> bool:
        program = replace(self.program, micro_batch_size=samples)
        return self.with_program(program).in_blocks().fits

    @property
    def away_bytes(self) -> int:
        """Bytes on activation servers."""
        samples = self.program.micro_batch_size
        return sum(page.footprint.of(samples) for page in self.pages)

    @property
    def overflow(self) -> Overflow | None:
        """What has no room; None for a plan that fits."""
        if self.fits:
            return None
        segment = self.program.segments[self.peak.segment]
        return Overflow(
            f"{segment.layer} {segment.phase}",
            max(0, self.peak_bytes - data_bytes(self.wafer)),
            max(0, self.away_bytes - self.machine.activations.total_bytes),
        )


def plan_sram(program: Program, machine: MachineSpec) -> SramPlan:
    """Plan the SRAM for a program, with as few segments recomputed as it takes.

    The first layers are recomputed first, since their activations are kept for longest; where that
    is not enough, their inputs go to activation servers, and where that is not, layers run in
    blocks. Raises ApplianceResourceExhausted, with the numbers, if the program does not fit so.
    """
    enough = num_recomputed(capacities(program, machine.system), program.micro_batch_size)
    chosen = recomputable(program)[:enough]
    sram_plan = SramPlan.of(recompute(program, chosen) if chosen else program, machine, chosen)
    sram_plan = sram_plan.in_blocks()
    check_fits(sram_plan)
    return sram_plan


def num_recomputed(capacity: Sequence[int], samples: int) -> int:
    """Return the fewest segments to recompute so that samples fit; all of them if nothing does."""
    fitting = (count for count, most in enumerate(capacity) if samples <= most)
    return next(fitting, len(capacity) - 1)


def largest_micro_batch(program: Program, machine: MachineSpec) -> int:
    """Return the samples of the largest micro-batch that fits; 0 if a single sample does not.

    The program may have been captured at any size: every footprint is a line over the samples.
    """
    return SramPlan.of(program, machine).paging.largest


def largest_with_recompute(program: Program, machine: MachineSpec) -> int:
    """Return the largest micro-batch that fits with every segment recomputed that can be.

    One where a single sample fits in blocks alone: micro-batches are not made larger by blocks.
    """
    chosen = recomputable(program)
    return SramPlan.of(recompute(program, chosen) if chosen else program, machine).largest


def check_fits(sram_plan: SramPlan) -> None:
    """Raise ApplianceResourceExhausted, with the numbers, for a program that does not fit."""
    overflow = sram_plan.overflow
    if overflow is None:
        return
    program, wafer = sram_plan.program, sram_plan.wafer
    tokens, largest = program.tokens_per_sample, sram_plan.largest_up_to(program.micro_batch_size)
    valid = Cut.of(program.batch_size, largest).size if largest else 0
    needed = f"{format_bytes(sram_plan.peak_bytes)} of SRAM"
    held = f"{format_bytes(data_bytes(wafer))} for data, of {format_bytes(wafer.sram_bytes)}"
    if overflow.server_bytes:
        needed += f" and {format_bytes(sram_plan.away_bytes)} of activation servers"
        held += f", and servers of {format_bytes(sram_plan.machine.activations.total_bytes)}"
    raise ApplianceResourceExhausted(
        f"activations and buffers of one {program.kind} micro-batch need {needed}",
        code="micro-batch-exceeds-sram",
        where=overflow.segment,
        value=f"micro-batch of {counted(program.micro_batch_size, 'sample')}"
        + (f" of {tokens:,} tokens" if tokens else "")
        + (f", with {len(sram_plan.recomputed)} layers recomputed" if sram_plan.recomputed else "")
        + (f", {len(sram_plan.pages)} on activation servers" if sram_plan.pages else ""),
        rule=f"a {wafer.name} has {held}",
        remedy=(
            f"lower csx.performance.micro_batch_size to {valid} or less"
            if valid
            else "choose a smaller model or shorter sequences: not even one sample fits"
        )
        + "; --simulate --allow_overflow predicts it as if it fitted",
    )
