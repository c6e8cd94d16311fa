"""Gradients that leave a CS node, summed over the micro-batches that it ran side by side.

Siblings of the reduce order are first added here, so that a node with several lanes sends one sum
instead of its parts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import torch

from csnode.lanes import Lanes
from csnode.micro_batch import MicroBatch
from wsc.core.packing import unpack
from wsc.core.partial_sum import Operands, PartialSum
from wsc.core.program import Bucket
from wsc.core.reduce_order import Merger, Subtree, leaf
from wsc.core.role import RoleContext


class GradientPacker:
    """Packs gradient buckets into fp32 slabs, one slab per maximal subtree of micro-batches.

    Tensors are independent of each other, so ``lanes`` add or copy them side by side.
    """

    def __init__(self, num_micro_batches: int, context: RoleContext, lanes: Lanes) -> None:
        self._num_micro_batches = num_micro_batches
        self._arena = context.arena
        self._cores = context.cores
        self._lanes = lanes

    def pack(
        self, bucket: Bucket, batches: Sequence[MicroBatch]
    ) -> list[tuple[Subtree, PartialSum]]:
        """Return the sums to send for one bucket, each in a slab, tensors in bucket order."""
        total = self._num_micro_batches
        allocate = partial(self._allocate, bucket)
        merger: Merger[PartialSum] = Merger(
            total, lambda left, right: left.add(right, allocate, self._for_each)
        )
        for batch in batches:
            gradients = PartialSum([batch.gradients[name] for name in bucket.names])
            merger.offer(leaf(batch.index, total), gradients)
        sums = merger.take()
        for _, part in sums:
            part.own(allocate, self._for_each)
        return sums

    def _allocate(self, bucket: Bucket, _: PartialSum) -> PartialSum:
        slab = self._arena.allocate(bucket.num_bytes)
        views = list(unpack(slab.view(torch.float32), bucket.specs))
        return PartialSum(views, slab, is_owned=True, on_release=slab.free)

    def _for_each(self, act: Callable[..., object], operands: Operands) -> None:
        def on_a_core(each: tuple[torch.Tensor, ...]) -> None:
            with self._cores.lease():
                act(*each)

        self._lanes.map(on_a_core, operands)
