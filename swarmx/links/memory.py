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
from collections import defaultdict
from typing import NamedTuple

import torch

from wsc.core.errors import (
    ApplianceCorruptionError,
    ApplianceResourceExhausted,
    ApplianceRuntimeServerError,
)
from wsc.core.payload import Payload
from wsc.core.units import MIB

_ALIGNMENT = 64  # bytes: a cache line, and the alignment for vector kernels
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
    """A payload in a block of this process; ``place`` is what other processes are told."""

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

    A freed slab is kept for the next one of its size: a role sends payloads of few sizes, the same
    in every step, so after the first step every page has been touched before.
    """

    def __init__(self) -> None:
        self._blocks: list[Block] = []
        self._free_bytes = 0  # left at the end of the last block
        self._freed: defaultdict[int, list[SharedPayload]] = defaultdict(list)
        self._carved: list[SharedPayload] = []  # all there are, freed or not
        self._lock = threading.Lock()  # threads of a link allocate, too

    def allocate(self, num_bytes: int) -> SharedSlab:
        """Return a slab of ``num_bytes``, 64-byte aligned, contents undefined."""
        with self._lock:
            freed = self._freed[num_bytes]
            return SharedSlab(self, freed.pop() if freed else self._carve(num_bytes))

    def take_back(self, payload: SharedPayload) -> None:
        """Keep the bytes of a freed slab for the next slab of this size."""
        with self._lock:
            self._freed[payload.num_bytes].append(payload)

    def take_back_all(self) -> None:
        """Take back every slab, freed or not; nobody may read or free one of them any more."""
        self._freed.clear()
        for payload in self._carved:
            self.take_back(payload)

    def close(self) -> None:
        """Free all memory; payloads in it can no longer be read."""
        for block in self._blocks:
            # Dropped, not closed: a tensor that still uses the mapping keeps it alive.
            _mappings.pop(block, None)
            os.close(block.descriptor)
        self._blocks.clear()
        self._freed.clear()
        self._carved.clear()
        self._free_bytes = 0

    def _carve(self, num_bytes: int) -> SharedPayload:
        aligned = -(-max(num_bytes, 1) // _ALIGNMENT) * _ALIGNMENT  # no two slabs at one offset
        if aligned > self._free_bytes:
            self._add_block(max(aligned, _BLOCK_BYTES))
        block = self._blocks[-1]
        offset = len(_mapped(block)) - self._free_bytes
        self._free_bytes -= aligned
        self._carved.append(SharedPayload(block, offset, num_bytes))
        return self._carved[-1]

    def _add_block(self, num_bytes: int) -> None:
        try:
            descriptor = os.memfd_create("waferstream", os.MFD_CLOEXEC)
        except OSError as error:
            raise _no_room(num_bytes, error) from error
        try:
            os.ftruncate(descriptor, num_bytes)
        except OSError as error:
            os.close(descriptor)
            raise _no_room(num_bytes, error) from error
        self._blocks.append(Block(os.getpid(), descriptor, os.fstat(descriptor).st_ino))
        self._free_bytes = num_bytes
