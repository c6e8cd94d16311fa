"""How many roles of a host compute at a time: never more than it has cores.

Roles outnumber cores, and most wait for messages; whoever computes holds a token. Tokens are
bytes in a pipe: reading one takes a core, writing it back returns it, and the kernel wakes whoever
waits. So no core idles while any role has work, and there is no process that hands them out.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Literal

from wsc.core.errors import ApplianceRuntimeServerError

_TOKEN = b"c"
_MODE = os.O_RDWR | os.O_CLOEXEC


def cores_of_host(asked: int | Literal["auto"]) -> int:
    """How many cores of this host may compute at a time: ``auto`` is all that this process has."""
    return len(os.sched_getaffinity(0)) if asked == "auto" else asked


class UnlimitedCores:
    """For roles of one process that take turns anyway."""

    def lease(self) -> AbstractContextManager[None]:
        """Nothing to hold."""
        return nullcontext()


class CorePool:
    """``num_cores`` tokens, shared by every process of the host that unpickles the pool.

    The pipe has no name; the kernel frees it with the last process that holds it. A process that
    is killed while it computes takes its token along: a pool does not outlive a failed cluster.
    """

    def __init__(self, num_cores: int) -> None:
        reader, writer = os.pipe()
        self._pipe = os.open(f"/proc/self/fd/{reader}", _MODE)
        os.close(reader)
        os.close(writer)
        os.write(self._pipe, _TOKEN * num_cores)

    @contextmanager
    def lease(self) -> Iterator[None]:
        """Hold one core, waiting for it while all are taken."""
        os.read(self._pipe, 1)
        try:
            yield
        finally:
            os.write(self._pipe, _TOKEN)

    def close(self) -> None:
        """Let go of the pipe; other processes keep theirs."""
        os.close(self._pipe)

    def __getstate__(self) -> tuple[int, int, int]:
        return os.getpid(), self._pipe, os.fstat(self._pipe).st_ino

    def __setstate__(self, state: tuple[int, int, int]) -> None:
        """Open the same pipe through a process that holds it.

        Raises ApplianceRuntimeServerError when that process is gone; the inode tells its pipe
        from whatever a later process keeps under the same numbers.
        """
        pid, descriptor, inode = state
        try:
            self._pipe = os.open(f"/proc/{pid}/fd/{descriptor}", _MODE)
        except OSError as error:
            raise _gone(pid) from error
        if os.fstat(self._pipe).st_ino != inode:
            os.close(self._pipe)
            raise _gone(pid)


def _gone(pid: int) -> ApplianceRuntimeServerError:
    return ApplianceRuntimeServerError(
        "the process that holds the pool of cores has ended",
        code="core-pool-closed",
        where=f"process {pid}",
        rule="all processes of a host share one pool",
    )
