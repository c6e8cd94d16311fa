"""A server's tensors on their way to and from a checkpoint file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from memoryx.checkpoint import Reader, append_tensors
from memoryx.checkpoint.layout import MODEL, OPTIMIZER_STATE
from memoryx.store import WeightStore


class Persistence:
    """Saves and restores one store; several servers write the same file one after the other."""

    def __init__(self, store: WeightStore) -> None:
        self._store = store

    def save_model(self, path: Path) -> None:
        """Append all masters; CheckpointError if the file cannot be written."""
        append_tensors(path, MODEL, dict(self._masters()))

    def save_optimizer(self, path: Path) -> None:
        """Append all optimizer state."""
        append_tensors(path, OPTIMIZER_STATE, dict(self._states()))

    def restore_model(self, path: Path, strict: bool) -> None:
        """Read masters in place; without ``strict``, those that the file lacks stay as they are."""
        self._read(path, MODEL, dict(self._masters()), strict)

    def restore_optimizer(self, path: Path, strict: bool) -> None:
        """Read optimizer state in place."""
        self._read(path, OPTIMIZER_STATE, dict(self._states()), strict)

    def _read(self, path: Path, prefix: str, own: dict[str, np.ndarray], strict: bool) -> None:
        reader = Reader(path)
        present = own if strict else own.keys() & set(reader.names(prefix))
        reader.read_into({f"{prefix}.{name}": own[name] for name in present})

    def _masters(self) -> Iterator[tuple[str, np.ndarray]]:
        for name, master in self._store.masters.items():
            yield name, master.numpy()

    def _states(self) -> Iterator[tuple[str, np.ndarray]]:
        for name, state in self._store.states.items():
            for key, tensor in state.items():
                yield f"{name}.{key}", tensor.numpy()
