"""The lanes of a node: how many things of one kind are worked on side by side on its host."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

Item = TypeVar("Item")
Result = TypeVar("Result")


class Lanes:
    """``count`` threads, each of which computes on one core; a single lane is the caller's thread.

    The threads end with the object.
    """

    def __init__(self, count: int, name: str) -> None:
        self._threads = (
            ThreadPoolExecutor(count, name, torch.set_num_threads, (1,)) if count > 1 else None
        )

    def map(self, work: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
        """The results for all items, in their order; raises what the first that fails raises."""
        side_by_side = map if self._threads is None else self._threads.map
        return list(side_by_side(work, items))
