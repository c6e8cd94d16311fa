"""Payloads in memory of one process: of roles that share it, or come from another host."""

from __future__ import annotations

import torch


class MemorySlab:
    """A payload of this process. Reading it after ``free`` is an error, not an old value."""

    def __init__(self, num_bytes: int) -> None:
        self.num_bytes = num_bytes
        self._bytes: torch.Tensor | None = torch.empty(num_bytes, dtype=torch.uint8)

    def view(self, dtype: torch.dtype) -> torch.Tensor:
        """All bytes as a flat tensor that shares memory with the slab."""
        if self._bytes is None:
            raise RuntimeError("a slab was read after it was freed")
        return self._bytes.view(dtype)

    def free(self) -> None:
        """Give the memory back; RuntimeError if that was done before."""
        if self._bytes is None:
            raise RuntimeError("a slab was freed twice")
        self._bytes = None


class MemoryArena:
    """Slabs from this process' allocator, which aligns to 64 bytes and reuses by itself."""

    def allocate(self, num_bytes: int) -> MemorySlab:
        """A slab of ``num_bytes``, contents undefined."""
        return MemorySlab(num_bytes)

    def close(self) -> None:
        """Nothing to do: tensors go when nobody holds them."""
