"""An arena that detects reads of memory that is not filled yet or already freed."""

from __future__ import annotations

import torch

from swarmx.links.memory import MemoryArena, MemorySlab


class StrictSlab(MemorySlab):
    """A slab whose bytes are NaN before it is filled and after it was freed."""

    def __init__(self, num_bytes: int, arena: StrictArena) -> None:
        super().__init__(num_bytes)
        self._arena = arena
        self.view(torch.uint8).fill_(0xFF)  # NaN in every float format

    def free(self) -> None:
        self.view(torch.uint8).fill_(0xFF)
        super().free()
        self._arena.live.discard(self)


class StrictArena(MemoryArena):
    """Counts slabs; a role that reads too early or too late computes with NaN."""

    def __init__(self) -> None:
        self.live: set[StrictSlab] = set()
        self.allocated = 0

    def allocate(self, num_bytes: int) -> StrictSlab:
        slab = StrictSlab(num_bytes, self)
        self.live.add(slab)
        self.allocated += 1
        return slab
