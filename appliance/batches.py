"""Read global batches by step number from any loader that a user's input function returns.

A source with a ``batch(step)`` method is read by step, so a resumed run starts at once. Any other
iterable (a torch DataLoader, a list, a generator) is read in order and restarts at its end; to
resume, it is read up to the step where the run continues. An iterable that can be read only once,
as a generator, is created again by another call of the input function.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol, cast, runtime_checkable

import torch
from torch.utils import _pytree as pytree

from wsc.core.errors import DataError


@runtime_checkable
class BatchSource(Protocol):
    """Random access to global batches."""

    def batch(self, step: int) -> Any:
        """Return the global batch of a step (from 0); it depends on nothing but the step."""


class GlobalBatches:
    """Global batches of a loader by step, flattened to their tensors in pytree order.

    ``make_source`` calls the user's input function with its arguments. ``batch_size`` is the
    number of rows of every tensor; None takes it from the first tensor.
    """

    def __init__(
        self,
        make_source: Callable[[], BatchSource | Iterable[Any]],
        batch_size: int | None = None,
    ) -> None:
        self._make_source = make_source
        self._source = make_source()
        self._batch_size = batch_size
        self._iterator: Iterator[Any] | None = None
        self._position = 0
        self._latest: tuple[int, list[torch.Tensor]] | None = None

    def first(self) -> tuple[Any, list[torch.Tensor]]:
        """Return the first global batch in the structure of the loader, and its tensors."""
        batch = self._batch(0)
        return batch, batch_leaves(batch, self._batch_size)

    def leaves(self, step: int) -> list[torch.Tensor]:
        """Return the tensors of the global batch of ``step`` (from 0), all with equal rows.

        Raises:
            DataError: The source is empty, or a tensor has another number of rows.
        """
        if self._latest is None or self._latest[0] != step:
            self._latest = (step, batch_leaves(self._batch(step), self._batch_size))
        return self._latest[1]

    def _batch(self, step: int) -> Any:
        source = self._source
        return source.batch(step) if isinstance(source, BatchSource) else self._read_up_to(step)

    def _read_up_to(self, step: int) -> Any:
        """Return batch ``step`` of a source without random access; go back by starting again."""
        if self._iterator is None or step < self._position:
            self._iterator, self._position = self._from_the_start(), 0
        while True:
            batch = self._next(self._iterator)
            self._position += 1
            if self._position == step + 1:
                return batch

    def _next(self, iterator: Iterator[Any]) -> Any:
        """Return the next batch in order; restart the source at its end."""
        for batch in iterator:
            return batch
        self._iterator = self._from_the_start()
        for batch in self._iterator:
            return batch
        raise DataError(
            "the loader of the input function must yield at least one batch; got none",
            code="loader-empty",
            remedy="check the dataset's path and that it holds at least one global batch",
        )

    def _from_the_start(self) -> Iterator[Any]:
        if self._iterator is self._source:  # an iterator, which can be read only once
            self._source = self._make_source()
        return iter(cast(Iterable[Any], self._source))


def batch_leaves(batch: Any, batch_size: int | None = None) -> list[torch.Tensor]:
    """Return the tensors of a batch in pytree order, after a check of their rows.

    All must have ``batch_size`` rows, or as many as the first tensor if it is None.

    Raises:
        DataError: A tensor has another number of rows.
    """
    leaves = [leaf for leaf in pytree.tree_leaves(batch) if isinstance(leaf, torch.Tensor)]
    for leaf in leaves:
        batch_size = batch_size or (leaf.shape[0] if leaf.ndim else None)
        if leaf.ndim == 0 or leaf.shape[0] != batch_size:
            raise DataError(
                "every tensor of a batch must have as many rows as the batch",
                code="batch-rows-mismatch",
                value=f"shape {tuple(leaf.shape)}",
                rule=f"dimension 0 is the global batch size, {batch_size}",
                remedy="configure the loader to drop the last, incomplete batch",
            )
    return leaves
