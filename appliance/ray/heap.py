"""The memory that this process frees: kept while steps run, given back after everything else.

Both are calls of glibc (mallopt(3), malloc_trim(3)), and do nothing where the C library has none.
"""

from __future__ import annotations

import ctypes

# mallopt(3), malloc.h
_M_TRIM_THRESHOLD = -1
_M_TOP_PAD = -2
_M_MMAP_MAX = -4
_M_ARENA_MAX = -8

_NEVER_TRIM = 2**31 - 1
_LARGEST_HEAP_BYTES = 64 << 20  # HEAP_MAX_SIZE of malloc/arena.c on 64 bits


def keep_freed() -> None:
    """Keep freed memory in this process.

    By default glibc gives every thread a heap of its own and returns large blocks to the kernel
    as soon as they are freed. Two lanes of one process then spend their time on page faults,
    under one lock in the kernel. Heaps that only grow avoid both. Blocks of more than 32 MiB come
    from them only if none is mapped by itself, since glibc allows no higher threshold
    (HEAP_MAX_SIZE / 2, malloc/malloc.c).

    No further heap is made. Threads that were there before may have heaps already, which lanes
    share. These consist of pieces of 64 MiB: larger blocks are mapped, and the last piece goes as
    soon as it is empty, unless ``M_TOP_PAD`` asks for as much (heap_trim of malloc/arena.c).
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_ARENA_MAX, 1)
        mallopt(_M_MMAP_MAX, 0)
        mallopt(_M_TRIM_THRESHOLD, _NEVER_TRIM)
        mallopt(_M_TOP_PAD, _LARGEST_HEAP_BYTES)


def give_back_freed() -> None:
    """Give the pages of all freed memory back to the kernel."""
    malloc_trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if malloc_trim is not None:
        malloc_trim(0)
