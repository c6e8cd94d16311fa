"""The no-stall condition, layer by layer: weights and gradients stream while the wafer computes.

A segment does not stall the wafer if what streams for it passes the narrowest link, and MemoryX
reads its masters from memory, in less time than it computes: bandwidth >= bytes / compute time
(Lie, "Cerebras Architecture Deep Dive", Hot Chips 2022: weight streaming). Where it does not hold
there are three remedies, each given as the smallest sufficient change: more samples in a
micro-batch, more bandwidth, or another share of zeros among the weights. Zeros neither stream nor
compute, so a share of zeros is a remedy only where less computing than streaming is saved, such as
beside attention. Which share suffices takes the costs of the step at that share
(``waferstream.simulator.stream_checks``). Masters in flash are not checked.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import ROUND_UP, Context, Decimal
from math import inf
from typing import Literal

from waferstream.core.program.program import MASTER_BYTES, Program
from waferstream.core.program.schedule import Schedule
from waferstream.core.program.segment import Phase
from waferstream.core.units import PS_PER_S, transfer_ps
from waferstream.machine.cost import SegmentCost
from waferstream.machine.densities import DENSE, Densities, mean_density
from waferstream.machine.hardware import MachineSpec
from waferstream.machine.sram.paging import NOTHING_PAGED, PagedBytes

_THREE_DIGITS_UP = Context(prec=3, rounding=ROUND_UP)
Bound = Literal["compute", "link", "memory"]
"""What takes longest in a segment; memory is that of MemoryX, which holds the masters."""


@dataclass(frozen=True)
class StreamCheck:
    """One segment: bytes each way on the narrowest link and out of memory, and its time."""

    layer: str
    phase: Phase
    weight_bytes: int
    gradient_bytes: int
    compute_ps: int  # compute and overhead of one micro-batch
    bandwidth_bytes_per_s: int  # of the narrowest link, in each direction
    overhead_ps: int = 0  # part of ``compute_ps`` that does not grow with the samples
    master_bytes: int = 0  # of ``weight_bytes``, as MemoryX holds them
    memory_bytes_per_s: int = 1
    density: float = 1.0  # share of the segment's weights that are not zero
    sufficient_density: float | None = None  # of all products, the nearest; None if none suffices
    paged: PagedBytes = NOTHING_PAGED  # activations that share the link, of one micro-batch

    @property
    def stream_bytes(self) -> int:
        """Bytes of the busier direction, activations included; both run at once."""
        paged = self.paged
        return max(self.weight_bytes + paged.fetched_bytes, self.gradient_bytes + paged.sent_bytes)

    @property
    def stream_ps(self) -> int:
        """Time of the stream: the slower of reading and sending, which overlap."""
        return max(self._sent_ps, self._read_ps)

    @property
    def bound(self) -> Bound:
        """What the segment is bound by."""
        if self.holds:
            return "compute"
        return "link" if self._sent_ps >= self._read_ps else "memory"

    @property
    def holds(self) -> bool:
        """Whether the stream takes no longer than the segment computes."""
        return self.stream_ps <= self.compute_ps

    @property
    def needed_bytes_per_s(self) -> int:
        """Smallest link bandwidth with which the condition holds; 0 without weights."""
        return self._needed(self.stream_bytes)

    @property
    def needed_memory_bytes_per_s(self) -> int:
        """Smallest memory bandwidth with which the condition holds."""
        return self._needed(self.master_bytes)

    @property
    def _sent_ps(self) -> int:
        return transfer_ps(self.stream_bytes, self.bandwidth_bytes_per_s)

    @property
    def _read_ps(self) -> int:
        return transfer_ps(self.master_bytes, self.memory_bytes_per_s)

    def _needed(self, num_bytes: int) -> int:
        return -(-num_bytes * PS_PER_S // max(1, self.compute_ps))

    def remedy(self, micro_batch_size: int, largest: int) -> str:
        """Return the smallest sufficient change of each kind; empty if the condition holds.

        Numbers are rounded to a few digits, always to a sufficient value. ``largest`` is the
        largest micro-batch that fits the wafer.
        """
        if self.holds:
            return ""
        remedies = [self._enough_bandwidth(), *self._enough_zeros()]
        samples = self._enough_samples(micro_batch_size)
        if samples <= largest:
            remedies.insert(0, f"micro-batch of {samples} samples")
        return ", or ".join(remedies)

    def _enough_bandwidth(self) -> str:
        """Return the bandwidth needed of the link, of the memory, or of both."""
        pairs = (
            (self.needed_bytes_per_s, self.bandwidth_bytes_per_s, "a link"),
            (self.needed_memory_bytes_per_s, self.memory_bytes_per_s, "memory"),
        )
        return " and ".join(
            f"{place} of {_plain(_THREE_DIGITS_UP.create_decimal(needed) / 10**9)} GB/s"
            for needed, given, place in pairs
            if needed > given
        )

    def _enough_zeros(self) -> Iterator[str]:
        """Yield the nearest share of zeros with which the condition holds, if there is one."""
        if self.sufficient_density is None:
            return
        share = f"{1 - self.sufficient_density:.0%} of the weights zero"
        yield share if self.sufficient_density < self.density else f"only {share}"

    def _enough_samples(self, micro_batch_size: int) -> float:
        """Return the samples that compute as long as the stream takes; inf if none do."""
        paged_ps = transfer_ps(max(self.paged), self.bandwidth_bytes_per_s)
        growing_ps = self.compute_ps - self.overhead_ps - paged_ps
        if growing_ps <= 0:
            return inf
        fixed_ps = self.stream_ps - paged_ps - self.overhead_ps
        return -(-micro_batch_size * fixed_ps // growing_ps)


def _plain(number: Decimal) -> str:
    """Return a number without exponent and without trailing zeros."""
    return f"{number.normalize():f}"


def narrowest_bytes_per_s(machine: MachineSpec) -> int:
    """Return the bandwidth of the narrowest link between MemoryX and a system, each way."""
    return min(
        machine.memoryx.bandwidth_bytes_per_s,
        machine.swarmx.link_bandwidth_bytes_per_s,
        machine.system.io_bandwidth_bytes_per_s,
    )


def check_streams(
    program: Program,
    schedule: Schedule,
    costs: Sequence[SegmentCost],
    machine: MachineSpec,
    densities: Densities = DENSE,
    paged: Sequence[PagedBytes] = (),
) -> tuple[StreamCheck, ...]:
    """Return the condition for every segment, in order of execution.

    Args:
        program: The step.
        schedule: Its streams, of non-zeros alone.
        costs: Its costs, of non-zeros alone.
        machine: The emulated machine.
        densities: Densities that schedule and costs were made with.
        paged: Activations that move at each segment; by default none do.
    """
    moved = paged or [NOTHING_PAGED] * len(schedule)
    bandwidth = narrowest_bytes_per_s(machine)
    return tuple(
        StreamCheck(
            layer=segment.layer,
            phase=segment.phase,
            weight_bytes=sum(bucket.moved_bytes for bucket in step.weights),
            gradient_bytes=sum(bucket.moved_bytes for bucket in step.gradients),
            compute_ps=cost.total_ps,
            bandwidth_bytes_per_s=bandwidth,
            overhead_ps=cost.overhead_ps,
            master_bytes=sum(MASTER_BYTES * bucket.moved_elements for bucket in step.weights),
            memory_bytes_per_s=machine.memoryx.memory_bandwidth_bytes_per_s,
            density=mean_density(segment, program, densities),
            paged=pages,
        )
        for segment, step, cost, pages in zip(program.segments, schedule, costs, moved, strict=True)
    )
