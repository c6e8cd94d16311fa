"""What leaves a CS node: gradients of the micro-batches that it ran side by side.

Siblings of the reduce order meet here first, so that a node with several lanes sends one sum
instead of its parts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from csnode.lanes import Lanes
from csnode.micro_batch import MicroBatch
from wsc.core.packing import unpack
from wsc.core.payload import Slab
from wsc.core.program import Bucket, Program
from wsc.core.reduce_order import Merger, Subtree, leaf
from wsc.core.role import RoleContext


@dataclass
class _Part:
    """A gradient bucket: as the kernel returned it, or as views of the slab it was summed into."""

    tensors: list[torch.Tensor]
    slab: Slab | None = None


class GradientPacker:
    """Packs gradient buckets into fp32 slabs, one slab per maximal subtree of micro-batches.

    Tensors are independent of each other, so ``lanes`` work on them side by side.
    """

    def __init__(self, program: Program, context: RoleContext, lanes: Lanes) -> None:
        self._program = program
        self._arena = context.arena
        self._cores = context.cores
        self._lanes = lanes

    def pack(self, bucket: Bucket, batches: Sequence[MicroBatch]) -> list[tuple[Subtree, Slab]]:
        """The slabs to send for one bucket; tensors lie one after the other in bucket order."""
        total = self._program.num_micro_batches
        merger: Merger[_Part] = Merger(total, lambda left, right: self._sum(bucket, left, right))
        for batch in batches:
            part = _Part([batch.gradients[name] for name in bucket.names])
            merger.offer(leaf(batch.index, total), part)
        return [(subtree, self._packed(bucket, part)) for subtree, part in merger.take()]

    def _sum(self, bucket: Bucket, left: _Part, right: _Part) -> _Part:
        if left.slab is None:
            pairs = list(zip(left.tensors, right.tensors, strict=True))
            slab, views = self._allocate(bucket)
            self._each(_add_into, ((view, *pair) for view, pair in zip(views, pairs, strict=True)))
            left.slab, left.tensors = slab, views
        else:
            self._each(torch.Tensor.add_, zip(left.tensors, right.tensors, strict=True))
        if right.slab is not None:
            right.slab.free()
        return left

    def _packed(self, bucket: Bucket, part: _Part) -> Slab:
        """The part's slab; on first use its tensors are copied in and replaced by views of it."""
        if part.slab is None:
            part.slab, views = self._allocate(bucket)
            self._each(torch.Tensor.copy_, zip(views, part.tensors, strict=True))
            part.tensors = views
        return part.slab

    def _allocate(self, bucket: Bucket) -> tuple[Slab, list[torch.Tensor]]:
        """A slab for a bucket, and its view for each tensor."""
        slab = self._arena.allocate(bucket.num_bytes)
        return slab, list(unpack(slab.view(torch.float32), bucket.specs))

    def _each(self, act: Callable[..., Any], operands: Iterable[tuple[torch.Tensor, ...]]) -> None:
        """Do something for every tensor of a bucket, on as many cores as there are lanes."""

        def on_a_core(tensors: tuple[torch.Tensor, ...]) -> None:
            with self._cores.lease():
                act(*tensors)

        self._lanes.map(on_a_core, operands)


def _add_into(target: torch.Tensor, left: torch.Tensor, right: torch.Tensor) -> None:
    """``target = left + right`` in fp32, in one pass where the gradients are fp32 already."""
    if left.dtype == torch.float32:
        torch.add(left, right, out=target)
    else:
        target.copy_(left).add_(right)
