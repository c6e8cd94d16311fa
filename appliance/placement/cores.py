"""Limit how many roles of a host compute at a time to the number of its cores.

Roles outnumber cores, and most wait for messages; a role that computes holds a token. Tokens are
bytes in a pipe: reading one takes a core, writing it back returns it, and the kernel wakes a
waiting role. So no core is idle while a role has work, and no process has to assign cores.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import Literal

from waferstream.core.errors import ApplianceRuntimeServerError

_TOKEN = b"c"
_MODE = os.O_RDWR | os.O_CLOEXEC


def cores_of_host(requested: int | Literal["auto"]) -> int:
    """Return how many cores of this host may compute; ``auto``: all cores of this process."""
    return len(os.sched_getaffinity(0)) if requested == "auto" else requested


class UnlimitedCores:
    """Cores without a limit, for roles of one process that run one at a time."""

    def lease(self) -> AbstractContextManager[None]:
        """Return a lease of nothing."""
        return nullcontext()


class CorePool:
    """Pool of ``num_cores`` tokens, shared by all processes of the host that unpickle it.

    The pipe has no name; the kernel frees it with the last process that holds it. The token of a
    process that is killed while it computes is lost, until ``refill``.
    """

    def __init__(self, num_cores: int) -> None:
        self._num_cores = num_cores
        reader, writer = os.pipe()
        self._pipe = os.open(f"/proc/self/fd/{reader}", _MODE)
        os.close(reader)
        os.close(writer)
        os.write(self._pipe, _TOKEN * num_cores)
        self._end_with_pool()

    @contextmanager
    def lease(self) -> Iterator[None]:
        """Hold one core; wait while all are taken."""
        os.read(self._pipe, 1)
        try:
            yield
        finally:
            os.write(self._pipe, _TOKEN)

    def refill(self) -> None:
        """Put back the tokens of killed processes. Nobody may hold one."""
        os.set_blocking(self._pipe, False)
        with suppress(BlockingIOError):
            os.read(self._pipe, 1 << 16)  # the whole pipe
        os.set_blocking(self._pipe, True)
        os.write(self._pipe, _TOKEN * self._num_cores)

    def shares_with(self, other: CorePool) -> bool:
        """Return whether both are ends of one pool."""
        return os.fstat(self._pipe).st_ino == os.fstat(other._pipe).st_ino

    def close(self) -> None:
        """Close this process' end of the pipe; other processes keep theirs. Idempotent."""
        self._close()

    def _end_with_pool(self) -> None:
        """Let the descriptor end with this object: each attempt of a job unpickles a pool."""
        self._close = weakref.finalize(self, os.close, self._pipe)
        self._close.atexit = False  # a thread may still return its core

    def __getstate__(self) -> tuple[int, int, int, int]:
        return os.getpid(), self._pipe, os.fstat(self._pipe).st_ino, self._num_cores

    def __setstate__(self, state: tuple[int, int, int, int]) -> None:
        """Open the same pipe through a process that holds it.

        The inode distinguishes the pipe from a file that a later process has under the same
        process id and descriptor.

        Raises:
            ApplianceRuntimeServerError: The process has ended.
        """
        pid, descriptor, inode, self._num_cores = state
        try:
            self._pipe = os.open(f"/proc/{pid}/fd/{descriptor}", _MODE)
        except OSError as error:
            raise _closed(pid) from error
        if os.fstat(self._pipe).st_ino != inode:
            os.close(self._pipe)
            raise _closed(pid)
        self._end_with_pool()


def _closed(pid: int) -> ApplianceRuntimeServerError:
    return ApplianceRuntimeServerError(
        "the process that holds the pool of cores has ended",
        code="core-pool-closed",
        where=f"process {pid}",
        rule="all processes of a host share one pool",
    )
