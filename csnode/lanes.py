"""Lanes of a CS node: threads that compute micro-batches side by side, each on one core."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

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

    def submit(self, work: Callable[[], Result]) -> Future[Result]:
        """Let a lane do some work, after all work that was submitted before has begun.

        A single lane does it at once.
        """
        if self._threads is not None:
            return self._threads.submit(work)
        done: Future[Result] = Future()
        try:
            done.set_result(work())
        except Exception as error:
            done.set_exception(error)
        return done
