"""The memory that this process frees: kept while steps run, given back after everything else.

Both are calls of glibc (mallopt(3), malloc_trim(3)), and do nothing where the C library has none.
"""

from __future__ import annotations

import ctypes

# mallopt(3), malloc.h
_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
_M_ARENA_MAX = -8

_LARGEST_MMAP_THRESHOLD_BYTES = 32 << 20  # glibc refuses more on 64 bits
_NEVER_TRIM = 2**31 - 1


def keep_freed() -> None:
    """Keep freed memory in this process.

    By default glibc gives every thread a heap of its own and returns large blocks to the kernel
    as soon as they are freed. Two lanes of one process then spend their time on page faults,
    under one lock in the kernel. One heap for all threads that only grows avoids both.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_ARENA_MAX, 1)
        mallopt(_M_MMAP_THRESHOLD, _LARGEST_MMAP_THRESHOLD_BYTES)
        mallopt(_M_TRIM_THRESHOLD, _NEVER_TRIM)


def give_back_freed() -> None:
    """Give the pages of all freed memory back to the kernel."""
    malloc_trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if malloc_trim is not None:
        malloc_trim(0)
