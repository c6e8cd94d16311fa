"""``cstorch.save`` and ``cstorch.load``: checkpoints whose tensors the cluster writes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

from cstorch.backend import current_backend
from wsc.checkpoint import CLUSTER_STATES
from wsc.checkpoint.reader import Reader
from wsc.checkpoint.writer import writing
from wsc.core.errors import CheckpointError
from wsc.core.files import replacing


def save(state_dict: Mapping[str, Any], path: Path | str) -> None:
    """Write a checkpoint; for use in a checkpoint closure.

    The keys of ``state_dict`` name the states to save: ``model`` and ``optimizer`` are written by
    the weight servers, and their values are ignored; all other values must be of JSON types. The
    file appears whole or not at all; an existing one is replaced. CheckpointError if it cannot be
    written.
    """
    target = Path(path)
    states = [state for state in CLUSTER_STATES if state in state_dict]
    if not states:
        raise CheckpointError(
            "the state to save must hold a state of the cluster",
            code="no-cluster-state",
            where=str(target),
            rule=f"at least one of {', '.join(CLUSTER_STATES)}",
        )
    objects = {key: value for key, value in state_dict.items() if key not in CLUSTER_STATES}
    with writing(target), replacing(target, durable=True) as partial:
        current_backend().save(partial, states, objects)


def load(path: Path | str) -> dict[str, Any]:
    """Return the states of a checkpoint; tensors are read from the file on access.

    To continue training on the cluster use ``Backend.restore``, which does not load the weights
    into this process. CheckpointError if the file is damaged.
    """
    reader = Reader(Path(path))
    tensors = {state: LazyTensors(reader, state) for state in CLUSTER_STATES}
    return {**reader.objects, **{state: lazy for state, lazy in tensors.items() if lazy}}


class LazyTensors(Mapping[str, torch.Tensor]):
    """Tensors of one state of a checkpoint by name, each read on access."""

    def __init__(self, reader: Reader, state: str) -> None:
        self._reader = reader
        self._state = state
        self._names = reader.names(state)

    def __getitem__(self, name: str) -> torch.Tensor:
        if name not in self._names:
            raise KeyError(name)
        return torch.from_numpy(self._reader[f"{self._state}.{name}"])

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)
