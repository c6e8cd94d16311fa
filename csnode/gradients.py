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
from wsc.core.packing import shard_specs, unpack
from wsc.core.payload import Slab
from wsc.core.program import Program, Shard
from wsc.core.reduce_order import Merger, Span, leaf
from wsc.core.room import RoomContext


@dataclass
class _Part:
    """A gradient shard: as the kernel returned it, or as views of the slab it was summed into."""

    tensors: list[torch.Tensor]
    slab: Slab | None = None


class GradientPacker:
    """Packs gradient shards into fp32 slabs, one slab per maximal span of micro-batches.

    Tensors are independent of each other, so ``lanes`` work on them side by side.
    """

    def __init__(self, program: Program, context: RoomContext, lanes: Lanes) -> None:
        self._program = program
        self._arena = context.arena
        self._cores = context.cores
        self._lanes = lanes

    def pack(self, shard: Shard, batches: Sequence[MicroBatch]) -> list[tuple[Span, Slab]]:
        """The slabs to send for one shard; tensors lie one after the other in shard order."""
        total = self._program.num_micro_batches
        merger: Merger[_Part] = Merger(total, lambda left, right: self._sum(shard, left, right))
        for batch in batches:
            part = _Part([batch.gradients[name] for name in shard.names])
            merger.offer(leaf(batch.index, total), part)
        return [(span, self._packed(shard, part)) for span, part in merger.take()]

    def _sum(self, shard: Shard, left: _Part, right: _Part) -> _Part:
        if left.slab is None:
            pairs = list(zip(left.tensors, right.tensors, strict=True))
            slab, views = self._allocate(shard)
            self._each(_add_into, ((view, *pair) for view, pair in zip(views, pairs, strict=True)))
            left.slab, left.tensors = slab, views
        else:
            self._each(torch.Tensor.add_, zip(left.tensors, right.tensors, strict=True))
        if right.slab is not None:
            right.slab.free()
        return left

    def _packed(self, shard: Shard, part: _Part) -> Slab:
        """The part's slab; on first use its tensors are copied in and replaced by views of it."""
        if part.slab is None:
            part.slab, views = self._allocate(shard)
            self._each(torch.Tensor.copy_, zip(views, part.tensors, strict=True))
            part.tensors = views
        return part.slab

    def _allocate(self, shard: Shard) -> tuple[Slab, list[torch.Tensor]]:
        """A slab for a shard, and its view for each tensor."""
        slab = self._arena.allocate(shard.num_bytes)
        specs = shard_specs(self._program, shard, "float32")
        return slab, list(unpack(slab.view(torch.float32), specs))

    def _each(self, act: Callable[..., Any], operands: Iterable[tuple[torch.Tensor, ...]]) -> None:
        """Do something for every tensor of a shard, on as many cores as there are lanes."""

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
