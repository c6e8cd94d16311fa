"""Sums of the gradients of one segment, over the micro-batches of a node in a round.

Each micro-batch's gradients are added as soon as they are computed, on the lane that computed them:
they are still in its cache, and at most one sum for each level of the reduce order is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from threading import Lock
from types import MappingProxyType
from typing import NamedTuple, Protocol, TypeVar

import torch

from waferstream.core.messages.partial_sum import ForEach, PartialSum
from waferstream.core.messages.payload import Arena, Payload, unpack
from waferstream.core.messages.reduce_order import Merger, Subtree, leaf
from waferstream.core.program.stream_plan import Bucket
from waferstream.core.sparsity.nonzeros import Index
from waferstream.core.sparsity.packed_weights import gradient_bucket

Value = TypeVar("Value")


class SharedMerger(Merger[Value]):
    """A merger to which several threads may offer at a time; they add side by side."""

    def __init__(self, num_micro_batches: int, add: Callable[[Value, Value], Value]) -> None:
        super().__init__(num_micro_batches, add)
        self._lock = Lock()

    def _exchange(self, subtree: Subtree, value: Value) -> Value | None:
        with self._lock:
            return super()._exchange(subtree, value)


class SumMemory(Protocol):
    """Memory for the gradients of a node."""

    def allocate(self, bucket: Bucket, dtype: torch.dtype = torch.float32) -> PartialSum:
        """Return memory of a bucket's gradients, in its order, contents undefined.

        It is an owned sum if it is fp32.
        """


class SlabMemory:
    """Slabs of a role for gradients; lanes may allocate them at the same time."""

    def __init__(self, arena: Arena) -> None:
        self._arena = arena

    def allocate(self, bucket: Bucket, dtype: torch.dtype = torch.float32) -> PartialSum:
        """Return a slab for a bucket's gradients."""
        slab = self._arena.allocate(bucket.num_elements * dtype.itemsize)
        return sum_in(slab, bucket, dtype, slab.free)


def sum_in(
    memory: Payload,
    bucket: Bucket,
    dtype: torch.dtype,
    on_release: Callable[[], None] | None = None,
) -> PartialSum:
    """Return the gradients of a bucket in a payload."""
    views = list(unpack(memory.view(dtype), bucket.specs))
    return PartialSum(views, memory, is_owned=dtype == torch.float32, on_release=on_release)


class GradientSum(NamedTuple):
    """The sum of a bucket over a subtree of micro-batches, ready to be sent."""

    bucket: Bucket
    subtree: Subtree
    part: PartialSum


class LeafMemory(NamedTuple):
    """Memory for the gradients of one micro-batch: by bucket, and its tensors by name."""

    sums: Mapping[int, PartialSum]
    tensors: Mapping[str, torch.Tensor]


_NO_MEMORY = LeafMemory(MappingProxyType({}), MappingProxyType({}))


class GradientSums:
    """The gradients of some buckets, one fp32 sum for each maximal subtree of micro-batches.

    Siblings of the reduce order are added here, so that a node sends one sum instead of its parts.
    The gradient of a single micro-batch is sent in ``leaf_dtype``, that of the kernels. Of a weight
    with an index only the values of its non-zeros are added and sent.
    """

    def __init__(
        self,
        buckets: Sequence[Bucket],
        num_micro_batches: int,
        memory: SumMemory,
        indexes: Mapping[str, Index] = MappingProxyType({}),
        leaf_dtype: torch.dtype = torch.float32,
    ) -> None:
        self._num_micro_batches = num_micro_batches
        self._memory = memory
        self._leaf_dtype = leaf_dtype
        travelling = [gradient_bucket(bucket, indexes) for bucket in buckets]
        self._mergers = [(bucket, self._merger(bucket)) for bucket in travelling]
        self._indexes = {
            spec.name: indexes[spec.name]
            for packed, bucket in zip(travelling, buckets, strict=True)
            for spec in packed.specs
            if packed is not bucket and spec.name in indexes
        }

    def allocate(self, written: Set[str]) -> LeafMemory:
        """Return memory for the gradients of a micro-batch; any thread may call.

        It is for buckets that travel whole, and of which kernels write most there (``written``).
        """
        sums: dict[int, PartialSum] = {}
        tensors: dict[str, torch.Tensor] = {}
        for bucket, _ in self._mergers:
            if self._indexes.keys().isdisjoint(bucket.names) and _most_are_in(written, bucket):
                part = sums[bucket.index] = self._memory.allocate(bucket, self._leaf_dtype)
                tensors.update(zip(bucket.names, part.tensors, strict=True))
        return LeafMemory(sums, tensors)

    def offer(
        self,
        micro_batch: int,
        gradients: Mapping[str, torch.Tensor],
        memory: LeafMemory = _NO_MEMORY,
    ) -> None:
        """Add the gradients of a micro-batch, given by parameter; any thread may call.

        Those that are not in their ``memory`` already, but have some, are copied.
        """
        subtree = leaf(micro_batch, self._num_micro_batches)
        for bucket, merger in self._mergers:
            tensors = [self._packed(name, gradients[name]) for name in bucket.names]
            part = memory.sums.get(bucket.index)
            if part is None:
                part = PartialSum(tensors)
            else:
                _move(tensors, part.tensors)
            merger.offer(subtree, part)

    def _packed(self, name: str, gradient: torch.Tensor) -> torch.Tensor:
        """Return a gradient as it travels; a sparse product has computed no more than that."""
        index = self._indexes.get(name)
        if index is None or gradient.shape == (index.num_present,):
            return gradient
        return index.pack(gradient)

    def take(self, for_each: ForEach) -> list[GradientSum]:
        """Return all sums, each in memory of this node; those of a bucket by micro-batch."""
        return [
            GradientSum(bucket, subtree, self._in_memory(bucket, part, for_each))
            for bucket, merger in self._mergers
            for subtree, part in merger.take()
        ]

    def _merger(self, bucket: Bucket) -> SharedMerger[PartialSum]:
        def add(left: PartialSum, right: PartialSum) -> PartialSum:
            return left.add(right, lambda _: self._memory.allocate(bucket))

        return SharedMerger(self._num_micro_batches, add)

    def _in_memory(self, bucket: Bucket, part: PartialSum, for_each: ForEach) -> PartialSum:
        """Return a sum of a bucket; that of a single micro-batch may have to be copied."""
        if part.memory is None:
            part.move_to(self._memory.allocate(bucket, self._leaf_dtype), for_each)
        return part


def _most_are_in(written: Set[str], bucket: Bucket) -> bool:
    """Return whether more than half of a bucket's elements belong to these parameters."""
    found = sum(spec.num_elements for spec in bucket.specs if spec.name in written)
    return 2 * found > bucket.num_elements


def _move(tensors: Sequence[torch.Tensor], places: Sequence[torch.Tensor]) -> None:
    """Copy tensors to their places, if they are not there."""
    for tensor, place in zip(tensors, places, strict=True):
        if tensor.data_ptr() != place.data_ptr():
            place.copy_(tensor)
