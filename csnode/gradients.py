"""What leaves a CS node: gradients of the micro-batches that it ran side by side.

Siblings of the reduce order meet here first, so that a node with several lanes sends one sum
instead of its parts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from csnode.micro_batch import MicroBatch
from wsc.core.link import Arena, Slab
from wsc.core.packing import shard_specs, unpack
from wsc.core.program import Program, Shard
from wsc.core.reduce_order import Merger, Span, leaf


@dataclass
class _Part:
    """A gradient shard: as the kernel returned it, or as views of the slab it was summed into."""

    tensors: list[torch.Tensor]
    slab: Slab | None = None


class GradientPacker:
    """Packs gradient shards into fp32 slabs, one slab per maximal span of micro-batches."""

    def __init__(self, program: Program, arena: Arena) -> None:
        self._program = program
        self._arena = arena

    def pack(self, shard: Shard, batches: Sequence[MicroBatch]) -> list[tuple[Span, Slab]]:
        """The slabs to send for one shard; tensors lie one after the other in shard order."""
        total = self._program.num_micro_batches
        merger: Merger[_Part] = Merger(total, lambda left, right: self._sum(shard, left, right))
        for batch in batches:
            part = _Part([batch.gradients[name] for name in shard.names])
            merger.offer(leaf(batch.index, total), part)
        return [(span, self._packed(shard, part)) for span, part in merger.take()]

    def _sum(self, shard: Shard, left: _Part, right: _Part) -> _Part:
        self._packed(shard, left)
        for target, addend in zip(left.tensors, right.tensors, strict=True):
            target.add_(addend)
        if right.slab is not None:
            right.slab.free()
        return left

    def _packed(self, shard: Shard, part: _Part) -> Slab:
        """The part's slab; on first use its tensors are copied in and replaced by views of it."""
        if part.slab is None:
            part.slab = self._arena.allocate(shard.num_bytes)
            flat = part.slab.view(torch.float32)
            views = list(unpack(flat, shard_specs(self._program, shard, "float32")))
            for view, tensor in zip(views, part.tensors, strict=True):
                view.copy_(tensor)
            part.tensors = views
        return part.slab
