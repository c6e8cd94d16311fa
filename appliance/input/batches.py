"""Read global batches by step number from any loader that a user's input function returns.

A source with a ``batch(step)`` method is read by step, so a resumed run starts at once. Any other
iterable (a torch DataLoader, a list, a generator) is read in order and restarts at its end; to
resume, it is read up to the step where the run continues. An iterable that can be read only once,
as a generator, is created again by another call of the input function.

A loader draws from the process's generators: ``shuffle=True`` of a torch DataLoader draws the order
of an epoch, a dataset may augment samples. Several loaders may share a process, and every input
worker has one. Each therefore draws from a state of its own (``LoaderRandom``), which is put in
place while the loader's code runs. All loaders of one program start from one seed, so that they
draw the same numbers as

    torch.manual_seed(seed); np.random.seed(seed % 2**32); random.seed(seed)

followed by a plain loop over the loader. The batch of a step is therefore the same on every input
worker, in every epoch and after a resume, also with ``shuffle=True``.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, Protocol, cast

import numpy as np
import torch
from torch.utils import _pytree as pytree

from appliance.input.failures import telling_failures
from waferstream.core.errors import DataError, EmptyLoaderError

_Access = tuple[Callable[[], Any], Callable[[Any], Any]]
"""Functions that read and write the state of one generator."""

_PROCESS: tuple[_Access, ...] = (
    (torch.get_rng_state, torch.set_rng_state),
    (np.random.get_state, np.random.set_state),
    (random.getstate, random.setstate),
)


def register_classes(batch: object) -> None:
    """Let torch's trees reach into the mappings and objects of a batch, whatever their classes are.

    They know ``dict`` and its relatives in the standard library. Any other mapping, such as the
    encodings of a tokenizer, or an object with tensors as attributes, such as a dataclass, would be
    one leaf, and its tensors would not be found. A mapping is made from a dict.
    """
    while classes := {type(leaf) for leaf in pytree.tree_leaves(batch) if _has_parts(leaf)}:
        for each in classes:
            _register(each)


def attributes_of(value: object) -> dict[str, Any]:
    """Return the attributes of an object by name; empty for one that has none."""
    if hasattr(value, "__dict__"):
        return dict(vars(value))
    return {name: getattr(value, name) for name in getattr(value, "__slots__", ())}


def _has_parts(leaf: object) -> bool:
    """Return whether a leaf is a mapping, or an object with a tensor among its attributes."""
    if isinstance(leaf, Mapping):
        return True
    if isinstance(leaf, torch.Tensor | torch.nn.Module | type):
        return False
    return any(isinstance(each, torch.Tensor) for each in attributes_of(leaf).values())


def _register(kind: type[Any]) -> None:
    """Make a class a node of trees: its values, and their names as what must not change."""
    is_mapping = issubclass(kind, Mapping)
    parts: Callable[[Any], Mapping[Any, Any]] = dict if is_mapping else attributes_of
    make: Callable[[dict[Any, Any]], Any] = kind if is_mapping else partial(_made, kind)

    def flatten(value: Any) -> tuple[list[Any], list[Any]]:
        return list(parts(value).values()), list(parts(value))

    def with_keys(value: Any) -> tuple[list[tuple[Any, Any]], list[Any]]:
        values, names = flatten(value)
        return [(pytree.MappingKey(n), v) for n, v in zip(names, values, strict=True)], names

    def unflatten(values: Any, names: list[Any]) -> Any:
        return make(dict(zip(names, values, strict=True)))

    pytree.register_pytree_node(kind, flatten, unflatten, flatten_with_keys_fn=with_keys)


def _made(kind: type[Any], attributes: Mapping[str, Any]) -> Any:
    """Return an object of a class with these attributes; its constructor is not called."""
    made = object.__new__(kind)
    for name, value in attributes.items():
        object.__setattr__(made, name, value)  # also of a frozen dataclass
    return made


class BatchSource(Protocol):
    """Random access to global batches."""

    def batch(self, step: int) -> Any:
        """Return the global batch of a step (from 0); it depends on nothing but the step."""


class GlobalBatches:
    """Global batches of a loader by step, flattened to their tensors in pytree order.

    ``make_source`` calls the user's input function with its arguments. ``batch_size`` is the
    number of rows of every tensor; None takes it from the first tensor. ``seed`` is that of the
    loader's random numbers.
    """

    def __init__(
        self,
        make_source: Callable[[], BatchSource | Iterable[Any]],
        batch_size: int | None = None,
        seed: int = 0,
    ) -> None:
        self._make_source = make_source
        self._batch_size = batch_size
        self._random = LoaderRandom(seed)
        self._iterator: Iterator[Any] | None = None
        self._position = 0
        self._recent: dict[int, list[torch.Tensor]] = {}
        self._make()

    def first(self) -> tuple[Any, list[torch.Tensor]]:
        """Return the first global batch in the structure of the loader, and its tensors."""
        return self.structured(0)

    def structured(self, step: int) -> tuple[Any, list[torch.Tensor]]:
        """Return the global batch of ``step`` (from 0) in the structure of the loader, and its
        tensors; errors as of ``leaves``.
        """
        batch = self._batch(step)
        return batch, batch_leaves(batch, self._batch_size)

    def leaves(self, step: int) -> list[torch.Tensor]:
        """Return the tensors of the global batch of ``step`` (from 0), all with equal rows.

        They are kept for further calls until ``drop_before``.

        Raises:
            DataError: The source is empty, or a tensor has another number of rows.
        """
        if step not in self._recent:
            self._recent[step] = batch_leaves(self._batch(step), self._batch_size)
        return self._recent[step]

    def drop_before(self, step: int) -> None:
        """Forget the batches of earlier steps."""
        for earlier in [kept for kept in self._recent if kept < step]:
            del self._recent[earlier]

    def _make(self) -> None:
        with self._random.in_place():
            self.source = self._make_source()
        self._random.note_made(self.source)

    def _batch(self, step: int) -> Any:
        if not is_read_by_step(self.source):
            return self._read_up_to(step)
        with self._random.in_place():
            return cast(BatchSource, self.source).batch(step)

    def _read_up_to(self, step: int) -> Any:
        """Return batch ``step`` of a source without random access; go back by starting again."""
        if self._iterator is None or step < self._position:
            self._go_back()
        while True:
            with self._random.in_place(), telling_failures():
                batch = self._next()
            self._position += 1
            if self._position == step + 1:
                return batch

    def _go_back(self) -> None:
        """Start the first epoch again, with the random numbers that it had."""
        if self._iterator is self.source:
            self._random.restart()
            self._make()
        self._random.rewind()
        with self._random.in_place():
            self._iterator, self._position = self._iterate(), 0

    def _next(self) -> Any:
        """Return the next batch in order; restart the source at its end."""
        for batch in cast(Iterator[Any], self._iterator):
            return batch
        if self._iterator is self.source:  # an iterator, which can be read only once
            self.source = self._make_source()
        self._iterator = self._iterate()
        for batch in self._iterator:
            return batch
        raise EmptyLoaderError(
            "the loader of the input function must yield at least one batch in an epoch",
            code="loader-empty",
            where=f"batch {self._position + 1} of the loader",
            value=f"0 batches of a {type(self.source).__name__}",
            remedy="check the dataset's path and that it holds at least one global batch",
        )

    def _iterate(self) -> Iterator[Any]:
        return iter(cast(Iterable[Any], self.source))


def is_read_by_step(source: object) -> bool:
    """Return whether a loader is a ``BatchSource``, also one that passes ``batch`` on."""
    return callable(getattr(source, "batch", None))


def batch_leaves(batch: Any, batch_size: int | None = None) -> list[torch.Tensor]:
    """Return the tensors of a batch in pytree order, after a check of their rows.

    Classes of mappings and objects in the batch become nodes of trees.

    All must have ``batch_size`` rows, or as many as the first tensor if it is None.

    Raises:
        DataError: A tensor has another number of rows.
    """
    register_classes(batch)
    leaves = [leaf for leaf in pytree.tree_leaves(batch) if isinstance(leaf, torch.Tensor)]
    for leaf in leaves:
        batch_size = batch_size or (leaf.shape[0] if leaf.ndim else None)
        if leaf.ndim == 0 or leaf.shape[0] != batch_size:
            last = "configure the loader to drop the last, incomplete batch"
            size = "" if batch_size is None else f", {batch_size}"
            raise DataError(
                "every tensor of a batch must have as many rows as the batch",
                code="batch-rows-mismatch",
                value=f"shape {tuple(leaf.shape)}",
                rule=f"dimension 0 is the global batch size{size}",
                remedy=last if leaf.ndim else "give it a row for each sample",
            )
    return leaves


def process_states() -> tuple[Any, ...]:
    """Return the states of the process's generators."""
    return tuple(get() for get, _ in _PROCESS)


def set_process_states(states: tuple[Any, ...]) -> None:
    """Let the process's generators go on from their states of ``process_states``."""
    for (_, write), state in zip(_PROCESS, states, strict=True):
        write(state)


class LoaderRandom:
    """State of the random generators that one loader reads."""

    def __init__(self, seed: int) -> None:
        self._generators = _PROCESS
        self._seed = seed
        self._inside: tuple[Any, ...] | None = None  # None: to be seeded
        self._start: tuple[Any, ...] = ()

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Run the loader's code with its own state; the process's state is kept for afterwards."""
        outside = self._states()
        try:
            if self._inside is None:
                self._seed_process()
            else:
                self._set(self._inside)
            yield
        finally:
            self._inside = self._states()
            self._set(outside)

    def note_made(self, source: object) -> None:
        """Make the present state the one to rewind to; the source's own generators belong to it."""
        own = tuple((g.get_state, g.set_state) for g in generators_of(source))
        assert self._inside is not None, "a source is made in place"
        self._generators = (*_PROCESS, *own)
        self._inside = (*self._inside[: len(_PROCESS)], *(get() for get, _ in own))
        self._start = self._inside

    def rewind(self) -> None:
        """Go back to the state right after the source was made."""
        self._inside = self._start

    def restart(self) -> None:
        """Go back to the seed, before the source is made again."""
        self._generators, self._inside = _PROCESS, None

    def _seed_process(self) -> None:
        torch.default_generator.manual_seed(self._seed)
        np.random.seed(self._seed % 2**32)
        random.seed(self._seed)

    def _states(self) -> tuple[Any, ...]:
        return tuple(get() for get, _ in self._generators)

    def _set(self, states: tuple[Any, ...]) -> None:
        for (_, write), state in zip(self._generators, states, strict=True):
            write(state)


def generators_of(source: object) -> list[torch.Generator]:
    """Return the generators that a torch DataLoader and its samplers were made with."""
    samplers = [getattr(source, name, None) for name in ("sampler", "batch_sampler")]
    holders = [source, *samplers, *(getattr(sampler, "sampler", None) for sampler in samplers)]
    found = (getattr(holder, "generator", None) for holder in holders)
    return list(dict.fromkeys(g for g in found if isinstance(g, torch.Generator)))
