"""Lanes of a CS node: threads that compute micro-batches side by side, each on one core."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

import torch

Result = TypeVar("Result")


class Lanes:
    """``count`` threads, each of which computes on one core; a single lane is the caller's thread.

    The threads end with the object.
    """

    def __init__(self, count: int, name: str) -> None:
        self.count = count
        self._threads = (
            ThreadPoolExecutor(count, name, torch.set_num_threads, (1,)) if count > 1 else None
        )

    def submit(
        self, work: Callable[[], Result], after: Future[Any] | None = None
    ) -> Future[Result]:
        """Let a lane do some work, behind all that could begin before; a single lane does it now.

        Args:
            work: What to do.
            after: Work that this one follows. No lane waits for it: the work is in line for a lane
                from the moment when that has ended, in whatever way.
        """
        result: Future[Result] = Future()
        do = partial(_do, work, result)
        if self._threads is None:
            do()
        elif after is None:
            self._threads.submit(do)
        else:
            line_up = partial(self._threads.submit, do)
            after.add_done_callback(lambda _: line_up())
        return result


def _do(work: Callable[[], Result], result: Future[Result]) -> None:
    """Do some work, unless its result was cancelled."""
    if not result.set_running_or_notify_cancel():
        return
    try:
        result.set_result(work())
    except BaseException as error:  # of a thread, nobody else would hear of it
        result.set_exception(error)
        if not isinstance(error, Exception):  # Ctrl-C, in the thread of the caller
            raise
