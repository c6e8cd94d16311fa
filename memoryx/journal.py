"""Before-images of what the current step updates, so that a weight server can take it back.

Before a parameter is updated, its master and optimizer state are copied. The copies of a step are
forgotten when the next one begins to update, which it may only do when the step has been applied
by all servers (memoryx.commitment). So one copy of the trained parameters is enough, and the memory
of one step serves the next.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch

from memoryx.store import WeightStore

Image = dict[str, torch.Tensor]
"""Copies of the optimizer state of one parameter by name, and of its master as ``""``."""


class Journal:
    """The before-images of one step of one store; no memory is taken before the first one."""

    def __init__(self, store: WeightStore) -> None:
        self._store = store
        self._images: dict[str, Image] = {}  # memory of all parameters seen so far
        self._step = 0
        self._recorded: set[str] = set()  # parameters whose image is of ``_step``

    def record(self, step: int, names: Iterable[str]) -> None:
        """Copy parameters that step ``step`` is about to update; forget those of other steps."""
        if step != self._step:
            self._step = step
            self._recorded.clear()
        for name in names:
            now = self._tensors(name)
            image = self._images.get(name)
            if image is None or image.keys() != now.keys():
                image = self._images[name] = {key: torch.empty_like(t) for key, t in now.items()}
            for key, tensor in now.items():
                image[key].copy_(tensor)
            self._recorded.add(name)

    def rollback(self, step: int) -> None:
        """Take back the updates of the recorded step if it comes after ``step``."""
        if self._step <= step:
            return
        assert self._step == step + 1, "servers are at most one step apart"
        self._store.before_change(self._recorded)
        for name in self._recorded:
            for key, tensor in self._tensors(name).items():
                tensor.copy_(self._images[name][key])
        self.forget()

    def forget(self) -> None:
        """Keep no image: what was updated so far stays."""
        self._step = 0
        self._recorded.clear()

    def _tensors(self, name: str) -> Image:
        return {"": self._store.masters[name], **self._store.states[name]}
