"""The random numbers of one loader: a state of torch, NumPy and ``random`` of its own.

A loader draws from the process's generators: ``shuffle=True`` of a torch DataLoader draws the order
of an epoch, a dataset may augment samples. Several loaders may share a process, and every input
worker has one. Each therefore draws from its own state, which is put in place while the loader's
code runs. All loaders of one program start from one seed, so that they draw the same numbers as

    torch.manual_seed(seed); np.random.seed(seed % 2**32); random.seed(seed)

followed by a plain loop over the loader.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

_Access = tuple[Callable[[], Any], Callable[[Any], Any]]
"""Functions that read and write the state of one generator."""

_PROCESS: tuple[_Access, ...] = (
    (torch.get_rng_state, torch.set_rng_state),
    (np.random.get_state, np.random.set_state),
    (random.getstate, random.setstate),
)


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
