"""Memory for payloads: of one process, or shared by all processes of a host.

Shared memory comes as *blocks*, anonymous files of ``memfd_create(2)``: they have no name in any
file system, so the kernel frees them when the last process that maps them ends, however it ends.
A payload travels as the position of its bytes, and a reader maps the owner's block through
``/proc/<pid>/fd/<fd>`` at the first payload in it. Payloads are written once and read in place.
"""

from __future__ import annotations

import mmap
import os
import threading
from typing import NamedTuple

import torch

from swarmx.links.free_ranges import FreeRanges
from waferstream.core.errors import (
    ApplianceCorruptionError,
    ApplianceResourceExhausted,
    ApplianceRuntimeServerError,
)
from waferstream.core.messages.payload import ALIGNMENT_BYTES, Payload
from waferstream.core.units import MIB

_BLOCK_BYTES = 64 * MIB  # untouched pages use no memory, so blocks may be large


class MemorySlab:
    """A payload in memory of this process. Reading it after ``free`` is an error."""

    def __init__(self, num_bytes: int) -> None:
        self.num_bytes = num_bytes
        self._bytes: torch.Tensor | None = torch.empty(num_bytes, dtype=torch.uint8)

    def view(self, dtype: torch.dtype) -> torch.Tensor:
        """Return all bytes as a flat tensor that shares memory with the slab."""
        if self._bytes is None:
            raise RuntimeError("a slab was read after it was freed")
        return self._bytes.view(dtype)

    def free(self) -> None:
        """Free the memory; RuntimeError if it was freed before."""
        if self._bytes is None:
            raise RuntimeError("a slab was freed twice")
        self._bytes = None


class MemoryArena:
    """Slabs from the allocator of this process, which aligns to 64 bytes and reuses memory."""

    def allocate(self, num_bytes: int) -> MemorySlab:
        """Return a slab of ``num_bytes``, contents undefined."""
        return MemorySlab(num_bytes)

    def take_back_all(self) -> None:
        """Do nothing: tensors are freed with their last reference."""

    def close(self) -> None:
        """Do nothing: tensors are freed with their last reference."""


class Block(NamedTuple):
    """A memory file: the process that holds it, its descriptor there, and its inode.

    Process ids and descriptors are reused, inodes of open files are not; the inode distinguishes
    a block from a later one.
    """

    pid: int
    descriptor: int
    inode: int


_mappings: dict[Block, mmap.mmap] = {}


def _mapped(block: Block) -> mmap.mmap:
    """Return this process' mapping of a block, made at the first use and kept."""
    mapping = _mappings.get(block)
    if mapping is None:
        mapping = _mappings[block] = _map(block)
    return mapping


def _map(block: Block) -> mmap.mmap:
    path = f"/proc/{block.pid}/fd/{block.descriptor}"
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError as error:
        raise _owner_ended(block) from error
    try:
        status = os.fstat(descriptor)
        if status.st_ino != block.inode or not status.st_size:
            raise _owner_ended(block)
        return _map_file(descriptor, status.st_size)
    finally:
        os.close(descriptor)


def _map_file(descriptor: int, num_bytes: int) -> mmap.mmap:
    try:
        return mmap.mmap(descriptor, num_bytes)
    except OSError as error:
        raise _no_room(num_bytes, error) from error


def unmap_lost_blocks() -> None:
    """Let go of the blocks that their owners hold no more; tensors in them stay readable.

    A mapping keeps a descriptor and every touched page, also of a process that has ended.
    """
    for block in list(_mappings):  # another thread may map one meanwhile
        if not _is_held(block):
            _mappings.pop(block, None)


def _is_held(block: Block) -> bool:
    try:
        return os.stat(f"/proc/{block.pid}/fd/{block.descriptor}").st_ino == block.inode
    except OSError:
        return False


def _no_room(num_bytes: int, error: OSError) -> ApplianceResourceExhausted:
    return ApplianceResourceExhausted(
        "this host has no shared memory for a payload",
        code="no-shared-memory",
        where=f"process {os.getpid()}",
        value=f"{num_bytes} bytes: {error.strerror}",
        rule="limits of a process (ulimit -a) and of its container leave room for its payloads",
    )


def _owner_ended(block: Block) -> ApplianceRuntimeServerError:
    return ApplianceRuntimeServerError(
        "the process that holds this shared memory has ended",
        code="shared-memory-gone",
        where=f"memory of process {block.pid}",
        rule="a payload lives as long as the role that allocated it",
    )


class SharedPayload(NamedTuple):
    """A range of bytes of a block; it travels as these integers."""

    block: Block
    offset: int
    num_bytes: int

    def view(self, dtype: torch.dtype) -> torch.Tensor:
        """Return all bytes as a flat tensor, in place.

        Raises:
            ApplianceRuntimeServerError: The process that holds the block has ended.
            ApplianceCorruptionError: The range is not in the block.
        """
        mapping = _mapped(self.block)
        if self.offset + self.num_bytes > len(mapping):
            raise ApplianceCorruptionError(
                "a payload must lie in its block of shared memory",
                code="message-damaged",
                where=f"memory of process {self.block.pid}",
                value=f"{self.num_bytes} bytes at {self.offset} of {len(mapping)}",
            )
        if self.num_bytes == 0:  # frombuffer refuses an empty range
            return torch.empty(0, dtype=dtype)
        return torch.frombuffer(
            mapping, dtype=torch.uint8, count=self.num_bytes, offset=self.offset
        ).view(dtype)


class SharedSlab:
    """A payload in a block of this process; other processes receive its ``place``."""

    def __init__(self, arena: SharedArena, payload: SharedPayload) -> None:
        self.num_bytes = payload.num_bytes
        self.place = payload
        self._arena: SharedArena | None = arena

    def view(self, dtype: torch.dtype) -> torch.Tensor:
        """Return all bytes as a flat tensor that shares memory with the slab."""
        return self.place.view(dtype)

    def free(self) -> None:
        """Free the memory; RuntimeError if it was freed before."""
        if self._arena is None:
            raise RuntimeError("a slab was freed twice")
        self._arena.take_back(self.place)
        self._arena = None


def place_of(payload: Payload | None) -> SharedPayload | None:
    """Return where other processes of this host read a payload, None if they cannot."""
    match payload:
        case SharedSlab():
            return payload.place
        case SharedPayload():  # of another role, passed on
            return payload
    return None


class SharedArena:
    """Slabs of shared memory for one role; any thread allocates and frees.

    A slab takes the lowest free bytes, whatever was there before: a role sends payloads of many
    sizes, the same in every step, and has as much memory as its slabs have at a time.
    """

    def __init__(self) -> None:
        self._free: dict[Block, FreeRanges] = {}  # of every block there is
        self._lock = threading.Lock()  # threads of a link allocate, too

    def allocate(self, num_bytes: int) -> SharedSlab:
        """Return a slab of ``num_bytes``, 64-byte aligned, contents undefined."""
        taken_bytes = _aligned(num_bytes)
        with self._lock:
            for block, free in self._free.items():
                if (offset := free.take(taken_bytes)) is not None:
                    return SharedSlab(self, SharedPayload(block, offset, num_bytes))
            block, free = self._add_block(max(taken_bytes, _BLOCK_BYTES))
            free.take(taken_bytes)
            return SharedSlab(self, SharedPayload(block, 0, num_bytes))

    def take_back(self, payload: SharedPayload) -> None:
        """Make the bytes of a freed slab free."""
        with self._lock:
            free = self._free.get(payload.block)
            if free is not None:  # the arena is not closed
                free.give_back(payload.offset, _aligned(payload.num_bytes))

    def take_back_all(self) -> None:
        """Take back every slab, freed or not; nobody may read or free one of them any more."""
        for free in self._free.values():
            free.clear()

    def close(self) -> None:
        """Free all memory; payloads in it can no longer be read."""
        for block in self._free:
            # Dropped, not closed: a tensor that still uses the mapping keeps it alive.
            _mappings.pop(block, None)
            os.close(block.descriptor)
        self._free.clear()

    def _add_block(self, num_bytes: int) -> tuple[Block, FreeRanges]:
        try:
            descriptor = os.memfd_create("waferstream", os.MFD_CLOEXEC)
        except OSError as error:
            raise _no_room(num_bytes, error) from error
        try:
            os.ftruncate(descriptor, num_bytes)
        except OSError as error:
            os.close(descriptor)
            raise _no_room(num_bytes, error) from error
        block = Block(os.getpid(), descriptor, os.fstat(descriptor).st_ino)
        self._free[block] = FreeRanges(num_bytes)
        return block, self._free[block]


def _aligned(num_bytes: int) -> int:
    """Return the bytes that a slab takes: no two slabs are at one offset."""
    return -(-max(num_bytes, 1) // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
