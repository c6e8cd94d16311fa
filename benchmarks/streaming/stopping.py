"""Stop trees of processes while they wait for their trial.

A stopped process cannot notice that its parent has ended. So a keeper, a process that does nothing
else, continues all that is stopped as soon as the process that stopped it ends, in whatever way.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable, Iterator
from contextlib import suppress
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path


class Stopper:
    """Stops processes with all below them, and continues them. Call ``close`` in a ``finally``."""

    def __init__(self) -> None:
        spawn = get_context("spawn")
        theirs, self._pipe = spawn.Pipe(duplex=False)
        self._keeper = spawn.Process(target=_keep, args=(theirs,), name="keeper")
        self._keeper.start()
        theirs.close()  # so that the end of this process is the end of the pipe
        self._stopped: list[int] = []

    def stop(self, roots: Iterable[int]) -> None:
        """Stop processes and all below them, parents first."""
        self._stopped = [pid for root in roots for pid in _tree(root)]
        self._pipe.send(self._stopped)
        _signal(self._stopped, signal.SIGSTOP)

    def resume(self) -> None:
        """Continue all that is stopped."""
        _signal(self._stopped, signal.SIGCONT)
        self._stopped = []

    def close(self) -> None:
        """Continue all that is stopped and end the keeper. Idempotent."""
        self.resume()
        self._pipe.close()
        self._keeper.join()


def _keep(pipe: Connection) -> None:
    """Continue the processes that were named last when the pipe ends."""
    os.setsid()  # a signal to the group, as of Ctrl-C or timeout(1), is not for the keeper
    stopped: list[int] = []
    with suppress(EOFError):
        while True:
            stopped = pipe.recv()
    _signal(stopped, signal.SIGCONT)


def _signal(pids: Iterable[int], number: signal.Signals) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def _tree(pid: int) -> Iterator[int]:
    """Yield a process and all below it, each after its parent; itself alone if it has ended."""
    yield pid
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(FileNotFoundError, ProcessLookupError):  # a thread that has ended
            for child in children.read_text().split():
                yield from _tree(int(child))
