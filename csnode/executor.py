"""Executes segment steps of one program on a CS node: kernels on the lanes of the host.

Up to ``lanes`` micro-batches run side by side, each on one thread, so the number of threads never
changes a bit. The executor keeps nothing from one call to the next.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

import torch

from csnode.gradients import GradientPacker
from csnode.lanes import Lanes
from csnode.micro_batch import MicroBatch
from wsc.compiler.keyed_random import KEY_INPUT
from wsc.compiler.precision import DTYPES
from wsc.core.errors import ApplianceError
from wsc.core.installation import Installation
from wsc.core.packing import byte_ranges, unpack
from wsc.core.partial_sum import PartialSum
from wsc.core.payload import Payload
from wsc.core.program import Bucket
from wsc.core.reduce_order import Subtree
from wsc.core.rng import stream_key
from wsc.core.role import Interval, RoleContext
from wsc.core.schedule import SegmentStep


class Executor:
    """One installed program, ready to execute: its kernels are built, its schedule is known."""

    def __init__(
        self, installation: Installation, seed: int, context: RoleContext, lanes: Lanes
    ) -> None:
        self.program = installation.program
        self.rounds = installation.rounds
        self.schedule = installation.schedule
        self._kernels = [kernel.build() for kernel in installation.kernels]
        self._seed = seed
        self._cores = context.cores
        self._lanes = lanes
        self._packer = GradientPacker(self.program.num_micro_batches, context, lanes)

    def unpack(self, step: int, index: int, payload: Payload) -> MicroBatch:
        """Copy the inputs of a micro-batch out of their payload, which can be released then."""
        flat = payload.view(torch.uint8)
        values: dict[str, object] = {
            spec.name: flat[start:stop].clone().view(DTYPES[spec.dtype]).view(spec.shape)
            for spec, start, stop in byte_ranges(self.program.inputs)
        }
        values[KEY_INPUT] = stream_key(self._seed, step, index)
        return MicroBatch(index, values)

    def run(
        self,
        step: int,
        segment_step: SegmentStep,
        payloads: Mapping[int, Payload],
        batches: Sequence[MicroBatch],
    ) -> list[Interval]:
        """Run one segment for some micro-batches side by side.

        Args:
            step: The training or evaluation step, for traces and errors.
            segment_step: What to run.
            payloads: The weights of the segment, by bucket.
            batches: Their values and gradients are updated in place.

        Returns:
            When each micro-batch was computed.
        """
        segment = self.program.segments[segment_step.segment]
        kernel = self._kernels[segment.index]
        views = self._weights(segment_step, payloads)
        weights = [views[name] for name in segment.weights]

        def run_one(batch: MicroBatch) -> Interval:
            with self._cores.lease():
                detail = f"{segment_step.label}, micro-batch {batch.index}"
                start_ns = time.perf_counter_ns()
                try:
                    batch.run(segment, kernel, weights)
                except Exception as error:
                    raise _kernel_failed(f"{detail} of step {step}", error) from error
                stop_ns = time.perf_counter_ns()
            return Interval("compute", start_ns, stop_ns, step, detail)

        return self._lanes.map(run_one, batches)

    def pack(
        self, bucket: Bucket, batches: Sequence[MicroBatch]
    ) -> list[tuple[Subtree, PartialSum]]:
        """Return the sums of one gradient bucket that the node sends, each in a slab."""
        return self._packer.pack(bucket, batches)

    def _weights(
        self, step: SegmentStep, payloads: Mapping[int, Payload]
    ) -> dict[str, torch.Tensor]:
        """Return the segment's weights as views of the slabs in which they arrived."""
        dtype = DTYPES[self.program.stream_dtype]
        views: dict[str, torch.Tensor] = {}
        for bucket in step.weights:
            tensors = unpack(payloads[bucket.index].view(dtype), bucket.specs)
            views.update(zip(bucket.names, tensors, strict=True))
        return views


def _kernel_failed(where: str, error: Exception) -> ApplianceError:
    return ApplianceError(
        "a kernel failed",
        code="kernel-failed",
        where=where,
        value=repr(error),
        remedy="inspect that micro-batch of the data: often an index is beyond its table",
    )
