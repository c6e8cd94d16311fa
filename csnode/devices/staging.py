"""Copies between slabs and a device: weights in, sums of gradients out, two segments at a time.

    slab -> buffer of the host -> buffer of the device -> kernels          weights
    kernels -> sums on the device -> buffer of the host -> slab            gradients

While the kernels of one segment run, the weights of the next are copied, and the gradients of the
one before. Two buffers of each kind suffice, since a node runs two segments at a time. A slab is
free as soon as the processor has copied it, and the device holds weights of two segments at most
(as ZeRO-Infinity overlaps copies and computation: Rajbhandari et al. 2021, arXiv:2104.07857,
section 6.2).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

import torch

from csnode.devices.queues import Event, Queues
from csnode.gradients import GradientSum, SlabMemory, sum_in
from waferstream.core.messages.partial_sum import PartialSum
from waferstream.core.messages.payload import DEVICE_ALIGNMENT_BYTES, Payload
from waferstream.core.program.stream_plan import Bucket
from waferstream.core.roles.role import Cores

_MOST_COPYING = 8
"""Threads that copy a segment between slabs and page-locked memory: one moves about 10 GB/s, a
quarter or less of what the bus to a GPU does."""


class DevicePayload(NamedTuple):
    """Bytes in the memory of a device."""

    flat: torch.Tensor

    @property
    def num_bytes(self) -> int:
        """Size in bytes."""
        return self.flat.numel()

    def view(self, dtype: torch.dtype) -> torch.Tensor:
        """Return all bytes as a flat tensor, in place."""
        return self.flat.view(dtype)


class DeviceMemory:
    """Memory of a device for gradients, from torch's allocator of the compute queue."""

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def allocate(self, bucket: Bucket, dtype: torch.dtype = torch.float32) -> PartialSum:
        """Return memory of the device for a bucket's gradients."""
        num_bytes = bucket.num_elements * dtype.itemsize
        flat = torch.empty(num_bytes, dtype=torch.uint8, device=self._device)
        return sum_in(DevicePayload(flat), bucket, dtype)


@dataclass
class _Slot:
    """A buffer of the host and its copy on the device, for the weights of one segment."""

    host: torch.Tensor
    device: torch.Tensor
    copied: Event | None = None  # the device has what was in the buffer of the host
    read: Event | None = None  # kernels have read what was in the buffer of the device


class WeightsIn:
    """Copies the weights of segments to a device, each into the buffer of the last but one."""

    def __init__(self, queues: Queues) -> None:
        self._queues = queues
        empty = queues.host_bytes(0), torch.empty(0, dtype=torch.uint8, device=queues.device)
        self._slots = [_Slot(*empty), _Slot(*empty)]
        self._newest: _Slot | None = None

    @property
    def held_bytes(self) -> int:
        """Bytes of the device that weights take, whatever the size of the model."""
        return sum(slot.device.numel() for slot in self._slots)

    def place(self, payloads: Mapping[int, Payload]) -> dict[int, Payload]:
        """Begin to copy the weights of a segment, after which their slabs are free.

        Kernels that are queued from now on read them from the payloads that this returns.
        """
        ranges = dict(zip(payloads, _ranges(p.num_bytes for p in payloads.values()), strict=True))
        total = max((each.stop for each in ranges.values()), default=0)
        self._newest = None
        if not total:
            return {}
        slot = self._newest = self._slots.pop(0)
        self._slots.append(slot)
        if slot.copied is not None:
            slot.copied.wait()
        self._fit(slot, total)
        with _copying_threads():
            for index, payload in payloads.items():
                slot.host[ranges[index]].copy_(payload.view(torch.uint8))
        inward = self._queues.inward
        if slot.read is not None:
            inward.wait(slot.read)
        inward.copy(slot.device[:total], slot.host[:total])
        slot.copied = inward.record()
        self._queues.compute.wait(slot.copied)
        return {index: DevicePayload(slot.device[place]) for index, place in ranges.items()}

    def note_read(self) -> None:
        """Note that all kernels that read the weights placed last are queued."""
        if self._newest is not None:
            self._newest.read = self._queues.compute.record()

    def _fit(self, slot: _Slot, num_bytes: int) -> None:
        """Let a slot have room for so many bytes."""
        if slot.host.numel() >= num_bytes:
            return
        queues = self._queues
        slot.host = queues.host_bytes(num_bytes)
        slot.device = slot.device.new_empty(0)  # what it had is free before it takes more
        with queues.computing():
            slot.device = torch.empty(num_bytes, dtype=torch.uint8, device=queues.device)
        # The allocator may return memory that kernels in the queue still use.
        queues.inward.wait(queues.compute.record())


class GradientsOut:
    """Copies sums of gradients from a device into slabs."""

    def __init__(self, queues: Queues, memory: SlabMemory, cores: Cores) -> None:
        self._queues, self._memory, self._cores = queues, memory, cores
        self._buffers: list[torch.Tensor] = []  # of the host, not in use

    def depart(self, sums: Mapping[int, list[GradientSum]]) -> Leaving:
        """Begin to copy the sums of a segment, which its kernels may still compute."""
        compute, outward = self._queues.compute, self._queues.outward
        parts = [gradient.part for gradient in chain(*sums.values())]
        if not parts:
            return Leaving(self, sums, None, compute.record())
        ranges = _ranges(part.payload.num_bytes for part in parts)
        buffer = self._buffer(ranges[-1].stop)
        outward.wait(compute.record())
        for part, place in zip(parts, ranges, strict=True):
            outward.copy(buffer[place], part.payload.view(torch.uint8))
        return Leaving(self, sums, buffer, outward.record())

    def arrive(
        self, sums: Mapping[int, list[GradientSum]], buffer: torch.Tensor
    ) -> dict[int, list[GradientSum]]:
        """Return sums that have been copied to a buffer in slabs."""
        every = list(chain(*sums.values()))
        ranges = iter(_ranges(gradient.part.payload.num_bytes for gradient in every))
        with self._cores.lease(), _copying_threads():
            arrived = {
                owner: [self._in_slab(gradient, buffer[next(ranges)]) for gradient in of_owner]
                for owner, of_owner in sums.items()
            }
        self._buffers.append(buffer)
        return arrived

    def _in_slab(self, gradient: GradientSum, copied: torch.Tensor) -> GradientSum:
        part = self._memory.allocate(gradient.bucket, gradient.part.tensors[0].dtype)
        part.payload.view(torch.uint8).copy_(copied)
        return gradient._replace(part=part)

    def _buffer(self, num_bytes: int) -> torch.Tensor:
        """Return a buffer that no copy uses."""
        buffer = self._buffers.pop() if self._buffers else self._queues.host_bytes(0)
        return buffer if buffer.numel() >= num_bytes else self._queues.host_bytes(num_bytes)


class Leaving(NamedTuple):
    """The sums of a segment on the device, and the event behind their copies."""

    way: GradientsOut
    sums: Mapping[int, list[GradientSum]]
    buffer: torch.Tensor | None
    copied: Event

    @property
    def is_done(self) -> bool:
        """Whether all of the segment is done: kernels and copies."""
        return self.copied.is_done

    def wait(self) -> None:
        """Return when all of the segment is done."""
        self.copied.wait()

    def arrive(self) -> dict[int, list[GradientSum]]:
        """Return the sums in slabs, by the node that owns them."""
        self.wait()
        if self.buffer is None:
            return {owner: [] for owner in self.sums}
        return self.way.arrive(self.sums, self.buffer)


@contextmanager
def _copying_threads() -> Iterator[None]:
    """Let several threads share a copy of the processor, which has no order that could matter."""
    before = torch.get_num_threads()
    torch.set_num_threads(min(_MOST_COPYING, len(os.sched_getaffinity(0))))
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _ranges(sizes: Iterable[int]) -> list[slice]:
    """Return the places of payloads in a buffer, one after the other."""
    places, start = [], 0
    for num_bytes in sizes:
        places.append(slice(start, start + num_bytes))
        start += -(-num_bytes // DEVICE_ALIGNMENT_BYTES) * DEVICE_ALIGNMENT_BYTES
    return places
