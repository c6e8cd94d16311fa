"""Global batches by step number, from whatever a user's input function returns.

A source with a ``batch(step)`` method is asked directly, so a resumed run starts at once. Any
other iterable (a torch DataLoader, a list, a generator) is read in order and wraps round when it is
exhausted; to resume, it is read up to the step where the run goes on. What can be read only once,
as a generator, is made anew to be read again.
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
        """The global batch of a step (counted from 0), a pure function of the step."""


class GlobalBatches:
    """The global batch of each step, flattened to its tensors in pytree order.

    ``make_source`` is the user's input function, with its arguments.
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
        """The first global batch as the loader gives it, and its tensors."""
        batch = self._batch(0)
        return batch, batch_leaves(batch, self._batch_size)

    def leaves(self, step: int) -> list[torch.Tensor]:
        """Tensors of the global batch for ``step`` (counted from 0); each has B rows.

        Raises DataError when the source is empty or a tensor has another number of rows.
        """
        if self._latest is None or self._latest[0] != step:
            self._latest = (step, batch_leaves(self._batch(step), self._batch_size))
        return self._latest[1]

    def _batch(self, step: int) -> Any:
        source = self._source
        return source.batch(step) if isinstance(source, BatchSource) else self._read_up_to(step)

    def _read_up_to(self, step: int) -> Any:
        """Batch ``step`` of a source without random access: read on, or from the start."""
        if self._iterator is None or step < self._position:
            self._iterator, self._position = self._from_the_start(), 0
        while True:
            batch = self._next(self._iterator)
            self._position += 1
            if self._position == step + 1:
                return batch

    def _next(self, iterator: Iterator[Any]) -> Any:
        """The next batch in order, from the start again when the source is exhausted."""
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
        if self._iterator is self._source:  # which can be read only once
            self._source = self._make_source()
        return iter(cast(Iterable[Any], self._source))


def batch_leaves(batch: Any, batch_size: int | None = None) -> list[torch.Tensor]:
    """The tensors of a batch in pytree order, checked to have equally many rows.

    How many is ``batch_size``, or what the first tensor has.
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
