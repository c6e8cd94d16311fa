"""Save the tensors of a weight server to a checkpoint file, and restore them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

from memoryx.store import WeightStore
from wsc.checkpoint import CLUSTER_STATES
from wsc.checkpoint.reader import Reader
from wsc.checkpoint.writer import append_tensors


class Persistence:
    """Saves and restores one store; several servers write the same file in turn."""

    def __init__(self, store: WeightStore) -> None:
        self._store = store
        self._postponed: Callable[[], None] | None = None

    def save(self, path: Path, state: str) -> None:
        """Append the tensors of one of CLUSTER_STATES to a file.

        Raises:
            CheckpointError: The file cannot be written.
        """
        append_tensors(path, CLUSTER_STATES[state], self._tensors(state))

    def restore(self, path: Path, state: str, strict: bool) -> None:
        """Read the tensors of one of CLUSTER_STATES in place.

        Without ``strict``, tensors that the file lacks keep their values. Optimizer state is read
        later by ``catch_up`` if the store has no optimizer yet.

        Raises:
            CheckpointError: The file is damaged or does not match.
        """
        if state == "optimizer" and not self._store.has_optimizer:
            self._postponed = partial(self.restore, path, state, strict)
            return
        prefix, own = CLUSTER_STATES[state], self._tensors(state)
        reader = Reader(path)
        present = own if strict else own.keys() & set(reader.names(prefix))
        reader.read_into({f"{prefix}.{name}": own[name] for name in present})

    def catch_up(self) -> None:
        """Read the optimizer state that was requested before there was an optimizer."""
        if self._postponed is not None:
            self._postponed()
            self._postponed = None

    def _tensors(self, state: str) -> dict[str, np.ndarray]:
        """Return views of the store's tensors of a state, by their names in a checkpoint."""
        if state == "model":
            return {name: master.numpy() for name, master in self._store.masters.items()}
        return {
            f"{name}.{key}": tensor.numpy()
            for name, tensors in self._store.states.items()
            for key, tensor in tensors.items()
        }
