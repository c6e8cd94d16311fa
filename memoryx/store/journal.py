"""Before-images of what the current step updates, so that a weight server can take it back.

Before a parameter is updated, its master and optimizer state are copied. The copies of a step are
forgotten when the next one begins to update, which it may only do when the step has been applied
by all servers (memoryx.job.commitment). So one copy of the trained parameters is enough, and the
memory of one step serves the next.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch

from memoryx.store.store import WeightStore

Image = dict[str, torch.Tensor]
"""Copies of what ``WeightStore.of`` returns of one parameter, as it is held."""


class Journal:
    """The before-images of one step of one store; no memory is taken before the first one."""

    def __init__(self, store: WeightStore) -> None:
        self._store = store
        self._images: dict[str, Image] = {}  # memory of all parameters seen so far
        self._step = 0
        self._recorded: set[str] = set()  # parameters whose image is of ``_step``

    def reserve(self, names: Iterable[str]) -> None:
        """Take the memory for images of parameters, unless it is there."""
        memory = self._store.memory
        missing = {}
        for name in names:
            now, image = self._store.of(name), self._images.get(name, {})
            if _shapes(image) != _shapes(now):
                memory.discard(image.values())
                missing[name] = now
        places = [(name, key) for name, now in missing.items() for key in now]
        tensors = memory.allocate([tuple(missing[name][key].shape) for name, key in places])
        self._images.update({name: {} for name in missing})
        for (name, key), tensor in zip(places, tensors, strict=True):
            self._images[name][key] = tensor

    def record(self, step: int, names: Iterable[str]) -> None:
        """Copy parameters that step ``step`` is about to update; forget those of other steps."""
        if step != self._step:
            self._step = step
            self._recorded.clear()
        names = tuple(names)
        self.reserve(names)
        for name in names:
            now = self._store.of(name)
            image = self._images[name]
            for key, tensor in now.items():
                self._store.memory.use((image[key], tensor))
                image[key].copy_(tensor)
            self._recorded.add(name)

    def rollback(self, step: int) -> None:
        """Take back the updates of the recorded step if it comes after ``step``."""
        if self._step <= step:
            return
        assert self._step == step + 1, "servers are at most one step apart"
        self._store.before_change(self._recorded)
        for name in self._recorded:
            self._store.take_back(name, self._images[name])
        self.forget()

    def forget(self) -> None:
        """Keep no image: what was updated so far stays."""
        self._step = 0
        self._recorded.clear()


def _shapes(tensors: Image) -> dict[str, torch.Size]:
    """Return the shapes of tensors, which change with the number of non-zeros."""
    return {key: tensor.shape for key, tensor in tensors.items()}
