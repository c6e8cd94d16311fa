"""The walk of a CS node along its static schedule, for one program.

A generator: it yields messages to send, and None where the next action lacks a message. Up to
``lanes`` micro-batches run side by side, each on one thread, so the number of threads never
changes a bit.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch

from csnode.gradients import GradientPacker
from csnode.lanes import Lanes
from csnode.micro_batch import MicroBatch
from csnode.sram import SramLedger
from wsc.compiler.keyed_random import KEY_INPUT
from wsc.compiler.precision import DTYPES
from wsc.core.errors import ApplianceError
from wsc.core.installation import Installation
from wsc.core.messages import BatchReleased, GradientReady, Message, WeightsReleased
from wsc.core.packing import byte_ranges, unpack
from wsc.core.partial_sum import PartialSum
from wsc.core.payload import Payload
from wsc.core.program import Bucket
from wsc.core.reduce_order import Subtree
from wsc.core.rng import stream_key
from wsc.core.role import Interval, Report, RoleContext
from wsc.core.schedule import SegmentStep


class RoundOfStep(NamedTuple):
    """Where a node is on its walk."""

    step: int
    round: int


@dataclass
class Inbox:
    """What has arrived and is not used up, and which of our slabs are still being read."""

    weights: dict[tuple[RoundOfStep, int], Payload] = field(default_factory=dict)
    batches: dict[tuple[int, int], Payload] = field(default_factory=dict)
    sent: dict[tuple[RoundOfStep, int, Subtree], PartialSum] = field(default_factory=dict)


class InstalledKernels:
    """A program made ready to run: its kernels built, its schedule derived."""

    def __init__(self, installation: Installation) -> None:
        self.program = installation.program
        self.rounds = installation.rounds
        self.kernels = [kernel.build() for kernel in installation.kernels]
        self.schedule = installation.schedule


class Walk:
    """Runs rounds of one program; shares inbox, ledger and report with its node."""

    def __init__(
        self,
        installed: InstalledKernels,
        seed: int,
        context: RoleContext,
        lanes: Lanes,
        inbox: Inbox,
        sram: SramLedger,
        report: Report,
    ) -> None:
        self._program = installed.program
        self._kernels = installed.kernels
        self._schedule = installed.schedule
        self._seed = seed
        self._context = context
        self._lanes = lanes
        self._inbox = inbox
        self._sram = sram
        self._report = report
        self._packer = GradientPacker(installed.program.num_micro_batches, context, lanes)
        self._activation_bytes = 0

    def round(self, now: RoundOfStep, own: range) -> Iterator[Message | None]:
        """Every action of one round, for this node's micro-batches ``own`` (there may be none)."""
        batches: list[MicroBatch] = []
        for index in own:
            while (now.step, index) not in self._inbox.batches:
                yield None
            batches.append(self._unpack_batch(now.step, index))
            yield BatchReleased(now.step, index)
        for step in self._schedule:
            for bucket in step.weights:
                while (now, bucket.index) not in self._inbox.weights:
                    yield None
            yield from self._execute(now, step, batches)
        for batch in batches:
            results = tuple(batch.results[place] for place in range(self._program.num_results))
            self._report.results[now.step, batch.index] = results
        self._account([])

    def _execute(
        self, now: RoundOfStep, step: SegmentStep, batches: Sequence[MicroBatch]
    ) -> Iterator[Message]:
        """Run one segment whose weights are there."""
        self._run(now, step, batches)
        for bucket in step.weights:
            payload = self._inbox.weights.pop((now, bucket.index))
            self._sram.change("weights", -payload.num_bytes)
            yield WeightsReleased(*now, bucket.index)
        if step.stashes:
            self._account(batches)
        for batch in batches:
            batch.drop(step.drops)
        for bucket in step.gradients if batches else ():
            yield from self._reduce(now, bucket, batches)

    def _unpack_batch(self, step: int, index: int) -> MicroBatch:
        """Copy a micro-batch's inputs out of their slab, so that it can go back at once."""
        flat = self._inbox.batches.pop((step, index)).view(torch.uint8)
        values: dict[str, object] = {
            spec.name: flat[start:stop].clone().view(DTYPES[spec.dtype]).view(spec.shape)
            for spec, start, stop in byte_ranges(self._program.inputs)
        }
        values[KEY_INPUT] = stream_key(self._seed, step, index)
        return MicroBatch(index, values)

    def _run(self, now: RoundOfStep, step: SegmentStep, batches: Sequence[MicroBatch]) -> None:
        weights = self._weights(now, step)
        segment, kernel = self._program.segments[step.segment], self._kernels[step.segment]

        def run(batch: MicroBatch) -> Interval:
            with self._context.cores.lease():
                detail = f"{step.label}, micro-batch {batch.index}"
                start_ns = time.perf_counter_ns()
                try:
                    batch.run(segment, kernel, weights)
                except Exception as error:
                    raise _kernel_failed(f"{detail} of step {now.step}", error) from error
                stop_ns = time.perf_counter_ns()
            return Interval("compute", start_ns, stop_ns, now.step, detail)

        self._report.intervals.extend(self._lanes.map(run, batches))

    def _weights(self, now: RoundOfStep, step: SegmentStep) -> list[torch.Tensor]:
        """The segment's weights as views of the slabs they arrived in."""
        dtype = self._program.stream_dtype
        views: dict[str, torch.Tensor] = {}
        for bucket in step.weights:
            flat = self._inbox.weights[now, bucket.index].view(DTYPES[dtype])
            views.update(zip(bucket.names, unpack(flat, bucket.specs), strict=True))
        return [views[name] for name in self._program.segments[step.segment].weights]

    def _reduce(
        self, now: RoundOfStep, bucket: Bucket, batches: Sequence[MicroBatch]
    ) -> Iterator[GradientReady]:
        for subtree, part in self._packer.pack(bucket, batches):
            self._sram.change("gradients", bucket.num_bytes)
            self._inbox.sent[now, bucket.index, subtree] = part
            yield GradientReady(*now, bucket.index, subtree, part.payload)

    def _account(self, batches: Sequence[MicroBatch]) -> None:
        """Bring the ledger up to date with the activations that are held.

        The emulated wafer takes one micro-batch at a time; the others are the host's.
        """
        held_bytes = max((batch.num_bytes for batch in batches), default=0)
        self._sram.change("activations", held_bytes - self._activation_bytes)
        self._activation_bytes = held_bytes


def _kernel_failed(where: str, error: Exception) -> ApplianceError:
    return ApplianceError(
        "a kernel failed",
        where=where,
        value=repr(error),
        remedy="look at that micro-batch of the data: often an index is beyond its table",
    )
