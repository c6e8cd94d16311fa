"""Memory for payloads: of one process, or shared by all processes of a host.

Shared memory comes as *blocks*, anonymous files of ``memfd_create(2)``: they have no name in any
file system, so the kernel frees them when the last process that maps them ends, however it ends.
A payload travels as the position of its bytes, and a reader maps the owner's block through
``/proc/<pid>/fd/<fd>`` at the first payload in it. Payloads are written once and read in place.
"""

from __future__ import annotations

import mmap
import os
from collections import defaultdict
from typing import NamedTuple

import torch

from wsc.core.errors import ApplianceRuntimeServerError
from wsc.core.units import MIB

_ALIGNMENT = 64  # bytes: a cache line, and what vector kernels like
_BLOCK_BYTES = 64 * MIB  # untouched pages cost nothing, so blocks may be generous


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


class Block(NamedTuple):
    """A memory file: who holds it, under which descriptor, and its inode.

    Process ids and descriptors are used again, inodes of living files are not; the inode is what
    tells a block from its successor.
    """

    pid: int
    descriptor: int
    inode: int


_mappings: dict[Block, mmap.mmap] = {}


def _mapped(block: Block) -> mmap.mmap:
    """This process' view of a block, mapped at the first use and kept."""
    mapping = _mappings.get(block)
    if mapping is None:
        mapping = _mappings[block] = _map(block)
    return mapping


def _map(block: Block) -> mmap.mmap:
    path = f"/proc/{block.pid}/fd/{block.descriptor}"
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError as error:
        raise _owner_gone(block) from error
    try:
        status = os.fstat(descriptor)
        if status.st_ino != block.inode:
            raise _owner_gone(block)
        return mmap.mmap(descriptor, status.st_size)
    finally:
        os.close(descriptor)


def _owner_gone(block: Block) -> ApplianceRuntimeServerError:
    return ApplianceRuntimeServerError(
        "shared memory is gone",
        code="shared-memory-gone",
        where=f"memory of process {block.pid}",
        rule="a payload lives as long as the role that allocated it",
    )


class SharedPayload(NamedTuple):
    """Bytes inside a block; pickles as these few integers."""

    block: Block
    offset: int
    num_bytes: int

    def view(self, dtype: torch.dtype) -> torch.Tensor:
        """All bytes as a flat tensor, in place."""
        mapping = _mapped(self.block)
        if self.num_bytes == 0:  # which frombuffer refuses
            return torch.empty(0, dtype=dtype)
        return torch.frombuffer(
            mapping, dtype=torch.uint8, count=self.num_bytes, offset=self.offset
        ).view(dtype)


class SharedSlab:
    """A payload of a block of this process; pickles as the ``SharedPayload`` it is to others."""

    def __init__(self, arena: SharedArena, payload: SharedPayload) -> None:
        self.num_bytes = payload.num_bytes
        self._payload = payload
        self._arena: SharedArena | None = arena

    def view(self, dtype: torch.dtype) -> torch.Tensor:
        """All bytes as a flat tensor that shares memory with the slab."""
        return self._payload.view(dtype)

    def free(self) -> None:
        """Give the memory back; RuntimeError if that was done before."""
        if self._arena is None:
            raise RuntimeError("a slab was freed twice")
        self._arena.take_back(self._payload)
        self._arena = None

    def __reduce__(self) -> tuple[object, ...]:
        return SharedPayload, tuple(self._payload)


class SharedArena:
    """Slabs of shared memory for one role; not for several threads at a time.

    A freed slab is kept for the next one of its size: what a role sends has few sizes, and they
    come back every step, so that after the first step no page is touched for the first time.
    """

    def __init__(self) -> None:
        self._blocks: list[Block] = []
        self._free_bytes = 0  # left at the end of the last block
        self._freed: defaultdict[int, list[SharedPayload]] = defaultdict(list)

    def allocate(self, num_bytes: int) -> SharedSlab:
        """A slab of ``num_bytes``, 64-byte aligned, contents undefined."""
        freed = self._freed[num_bytes]
        return SharedSlab(self, freed.pop() if freed else self._carve(num_bytes))

    def take_back(self, payload: SharedPayload) -> None:
        """Keep a slab's bytes for the next slab of this size."""
        self._freed[payload.num_bytes].append(payload)

    def close(self) -> None:
        """Give all memory back; payloads that point into it can no longer be read."""
        for block in self._blocks:
            # Dropped, not closed: a tensor that still looks at the mapping keeps it alive.
            _mappings.pop(block, None)
            os.close(block.descriptor)
        self._blocks.clear()
        self._freed.clear()
        self._free_bytes = 0

    def _carve(self, num_bytes: int) -> SharedPayload:
        aligned = -(-max(num_bytes, 1) // _ALIGNMENT) * _ALIGNMENT  # no two slabs in one place
        if aligned > self._free_bytes:
            self._add_block(max(aligned, _BLOCK_BYTES))
        block = self._blocks[-1]
        offset = len(_mapped(block)) - self._free_bytes
        self._free_bytes -= aligned
        return SharedPayload(block, offset, num_bytes)

    def _add_block(self, num_bytes: int) -> None:
        descriptor = os.memfd_create("waferstream", os.MFD_CLOEXEC)
        os.ftruncate(descriptor, num_bytes)
        self._blocks.append(Block(os.getpid(), descriptor, os.fstat(descriptor).st_ino))
        self._free_bytes = num_bytes
