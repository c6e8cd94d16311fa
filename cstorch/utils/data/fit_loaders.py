"""The loader of every call of a Trainer's ``fit``: each begins as a loop over it would.

A loop over a loader begins with its first batch, in the order of a next epoch where the loader
shuffles; an iterator goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from cstorch.utils.data.dataloader import BATCHES, DataLoader
from cstorch.utils.data.given_loader import GivenLoader

Source = Iterable[Any] | Callable[[], Iterable[Any]]


class FitLoaders:
    """The loader that the last fit has read, and how far."""

    def __init__(self) -> None:
        self._given: Source | None = None
        self._loader: DataLoader | None = None
        self._num_read = 0

    def of(self, given: Source) -> DataLoader:
        """Return the loader for a fit, which begins where it has to."""
        is_first = self._loader is None
        if self._loader is None or given is not self._given:
            self._loader = DataLoader(given) if callable(given) else GivenLoader(given)
            self._given, self._num_read = given, 0
        self._num_read = _next_begin(self._loader, given, self._num_read)
        if not is_first:
            self._loader.load_state_dict({BATCHES: self._num_read})
        return self._loader

    def note_read(self, num_batches: int) -> None:
        """Note how many batches the fit has read."""
        self._num_read += num_batches


def _next_begin(loader: DataLoader, given: Source, num_read: int) -> int:
    """Return the batch with which the next loop begins, counted over all epochs."""
    if isinstance(given, Iterator) or not num_read:
        return num_read
    try:
        length = len(loader)
    except TypeError:
        return 0
    return -(-num_read // length) * length
