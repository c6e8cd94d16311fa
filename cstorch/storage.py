"""``cstorch.save`` and ``cstorch.load``: checkpoints whose tensors the cluster writes."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

from cstorch.checkpoints import local_path
from cstorch.current import current_session
from cstorch.optim.loading import file_layout, torch_layout
from cstorch.remote.weights import as_arrays
from cstorch.session import saving
from memoryx.sparsity.mask import mask_of
from waferstream.checkpoint import CLUSTER_STATES, MODEL, OPTIMIZER_STATE, SPARSITY_MASK
from waferstream.checkpoint.reader import Reader
from waferstream.checkpoint.writer import append_tensors, write_metadata, writing
from waferstream.core.errors import CheckpointError
from waferstream.host.files import replacing

log = logging.getLogger("waferstream")


def save(state_dict: Mapping[str, Any], path: Path | str) -> None:
    """Write a checkpoint; for use in a checkpoint closure, or before the first step.

    The file appears whole or not at all; an existing one is replaced, and missing folders are made.

    Args:
        state_dict: States by name. ``model`` and ``optimizer`` are written by the weight servers
            as they hold them now, whatever their values here, with one exception: a ``model`` of
            other tensors than the parameters of the compiled model (averaged weights, or some
            parameters only), or the state of an optimizer that has not been installed, is written
            as it is, and so is everything before the first step. All other values must be of JSON
            types.
        path: The file.

    Raises:
        CheckpointError: The file cannot be written, or no state of the cluster is named.
    """
    target = Path(local_path(path))
    states = [state for state in CLUSTER_STATES if state in state_dict]
    if not states:
        raise CheckpointError(
            "the state to save must hold a state of the cluster",
            code="no-cluster-state",
            where=str(target),
            rule=f"at least one of {', '.join(CLUSTER_STATES)}",
        )
    objects = {key: value for key, value in state_dict.items() if key not in CLUSTER_STATES}
    session = current_session()
    with writing(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        with replacing(target, durable=True) as partial:
            given = state_dict.get("model")
            if given and not (session.execution.cluster and session.model.is_held_in(given)):
                states.remove("model")
                append_tensors(partial, MODEL, as_arrays(given))
            optimizer = state_dict.get("optimizer")
            if optimizer and not session.execution.held.is_in(optimizer):
                states.remove("optimizer")
                tensors, objects["optimizer"] = file_layout(optimizer)
                append_tensors(partial, OPTIMIZER_STATE, as_arrays(tensors))
            if states or session.execution.cluster:
                saving.save(session, partial, states, objects)
            else:
                write_metadata(partial, objects)
    if names := Reader(target).not_finite:
        log.warning("Checkpoint %s has NaN or infinity in %s", target, ", ".join(names))


def load(
    path: Path | str,
    map_location: object = None,  # noqa: ARG001
) -> dict[str, Any]:
    """Return the states of a checkpoint; tensors are read from the file on access.

    To continue training on the cluster use ``Backend.restore``, which does not load the weights
    into this process.

    Args:
        path: The file.
        map_location: Accepted without effect: tensors are read into the memory of this process.

    Raises:
        CheckpointError: The file is damaged.
    """
    reader = Reader(Path(local_path(path)))
    states = dict(reader.objects)
    if model := LazyTensors(reader, MODEL):
        states["model"] = model
    if "optimizer" in reader.objects or reader.names(OPTIMIZER_STATE):
        states["optimizer"] = torch_layout(reader)
    if masks := _masks(reader):
        states["sparsity"] = masks
    return states


def _masks(reader: Reader) -> dict[str, torch.Tensor]:
    """Return the masks of a checkpoint by the names of their weights, whose shapes it has."""
    shapes = {name: reader.tensors[f"{MODEL}.{name}"].shape for name in reader.names(MODEL)}
    return {
        name: mask_of(reader[f"{SPARSITY_MASK}.{name}"], tuple(shapes[name]))
        for name in reader.names(SPARSITY_MASK)
        if name in shapes
    }


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
