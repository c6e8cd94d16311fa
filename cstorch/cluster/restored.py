"""The weights and states that a cluster starts from: initial ones, or those of a checkpoint."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch

from appliance.coordinator.cluster import Cluster
from appliance.coordinator.commands import LoadWeights, RestoreCheckpoint
from cstorch.remote.weights import Weights
from waferstream.checkpoint import CLUSTER_STATES, MODEL, OPTIMIZER_STATE, SPARSITY_MASK
from waferstream.checkpoint.reader import Reader
from waferstream.core.errors import CheckpointError
from waferstream.host.words import VENDOR_LOG

log = logging.getLogger("waferstream")

STATES = (*CLUSTER_STATES, "global_step", "grad_scaler", "schedulers", "dataloader")
"""The states that a checkpoint can restore."""

_NUM_SHOWN = 5  # keys of each kind in an error


@dataclass(frozen=True)
class Restored:
    """A checkpoint to start from, and which of its states the weight servers take."""

    path: Path
    states: frozenset[str]
    strict: bool

    @cached_property
    def _reader(self) -> Reader:
        return Reader(self.path)

    @property
    def has_all_weights(self) -> bool:
        """Whether every weight of the model comes from the checkpoint."""
        return "model" in self.states and self.strict

    @property
    def weight_names(self) -> frozenset[str]:
        """The weights that come from the checkpoint."""
        return frozenset(self._reader.names(MODEL) if "model" in self.states else ())

    def tensor(self, name: str, state: str) -> np.ndarray:
        """Return one tensor of a state of CLUSTER_STATES; CheckpointError if it is damaged."""
        return self._reader[f"{CLUSTER_STATES[state]}.{name}"]

    @property
    def mask_names(self) -> frozenset[str]:
        """The weights whose masks come from the checkpoint."""
        return frozenset(self._reader.names(SPARSITY_MASK) if "sparsity" in self.states else ())

    @cached_property
    def state_names(self) -> frozenset[str]:
        """The tensors of the optimizer state that the checkpoint has."""
        return frozenset(self._reader.names(OPTIMIZER_STATE))

    @property
    def updates(self) -> int:
        """Updates that the optimizer state has seen; earlier files have as many as steps."""
        objects = self._reader.objects
        steps = objects.get("global_step", 0) if self.state_names else 0
        return int(objects.get("optimizer", {}).get("updates", steps))

    @property
    def missed(self) -> Mapping[str, int]:
        """Updates that parameters have missed, by name."""
        return dict(self._reader.objects.get("optimizer", {}).get("missed", {}))

    def state(self, name: str) -> np.ndarray:
        """Return one tensor of the optimizer state; CheckpointError if the file is damaged."""
        return self._reader[f"{OPTIMIZER_STATE}.{name}"]

    def load_buffers(self, buffers: Mapping[str, torch.Tensor]) -> None:
        """Read buffers of the model in place; those that the checkpoint lacks stay unchanged.

        Raises:
            CheckpointError: The file is damaged, or a buffer has another shape.
        """
        for name in buffers.keys() & self.weight_names:
            value = torch.from_numpy(self._reader[f"{MODEL}.{name}"])
            if value.shape != buffers[name].shape:
                raise CheckpointError(
                    "a buffer has another shape than in the model",
                    code="buffer-shape-mismatch",
                    where=str(self.path),
                    value=f"{name}: found {tuple(value.shape)}, "
                    f"expected {tuple(buffers[name].shape)}",
                    remedy="load a checkpoint of the same model",
                )
            buffers[name].copy_(value)

    def load(self, cluster: Cluster, weights: Weights) -> None:
        """Let the weight servers read the states; later reads of the weights fetch them.

        Raises:
            CheckpointError: The checkpoint is damaged or does not match the model.
        """
        if "model" in self.states:
            check_keys(
                weights.local(),
                self.weight_names,
                optional={*weights.tied(), *weights.buffers()},
                strict=self.strict,
                where=str(self.path),
            )
        log.info("Loading weights from checkpoint %s", self.path)
        cluster.do(RestoreCheckpoint(self.path, self.states, self.strict))
        weights.outdate(self.weight_names)


def named_checkpoint(
    path: Path, states: Collection[str], strict: bool
) -> tuple[Restored, dict[str, Any]]:
    """Return a checkpoint to start from, and its states that are not tensors.

    Raises:
        CheckpointError: The checkpoint is damaged.
    """
    reader = Reader(path)
    if not reader.has_checksums:
        log.info("Checkpoint %s has no checksums: damage to it would not be found", path)
    if reader.not_finite:
        log.warning("Checkpoint %s has NaN or infinity in %s", path, ", ".join(reader.not_finite))
    return Restored(path.absolute(), frozenset(states), strict), reader.objects


def load_weights(cluster: Cluster, weights: Weights, restored: Restored | None) -> None:
    """Load weights into the servers: initial ones from this process, others from a checkpoint.

    Weights that were changed after the checkpoint was named are sent last.

    Raises:
        CheckpointError: The checkpoint is damaged or does not match the model.
    """
    changes = weights.take_changes()
    if restored is None or not restored.has_all_weights:
        VENDOR_LOG.info("About to send initial weights")
        for part in weights.initial_parts():
            if part:
                cluster.do(LoadWeights(part))
        VENDOR_LOG.info("Finished sending initial weights")
    if restored is not None:
        restored.load(cluster, weights)
        if changes:
            cluster.do(LoadWeights(changes))
    weights.note_sent()


def check_keys(
    expected: Iterable[str],
    found: Iterable[str],
    *,
    optional: Collection[str] = (),
    strict: bool,
    where: str,
) -> None:
    """Compare a model's keys with those of a checkpoint; if they differ, warn.

    Args:
        expected: Keys of the model.
        found: Keys of the checkpoint.
        optional: Keys that the checkpoint may have or not.
        strict: Raise an error instead of the warning.
        where: The checkpoint, for the message.

    Raises:
        CheckpointError: The keys differ, and ``strict`` is set.
    """
    ours, theirs = dict.fromkeys(expected), dict.fromkeys(found)
    missing = [key for key in ours if key not in theirs]
    unexpected = [key for key in theirs if key not in ours and key not in optional]
    if not missing and not unexpected:
        return
    difference = "; ".join(_described(missing, unexpected))
    if strict:
        raise CheckpointError(
            "the checkpoint does not match the model",
            code="checkpoint-keys-mismatch",
            where=where,
            value=difference,
            remedy="load a checkpoint of this model, or disable_strict_checkpoint_loading",
        )
    log.warning("The checkpoint %s does not match the model: %s", where, difference)


def _described(missing: Sequence[str], unexpected: Sequence[str]) -> Iterator[str]:
    for word, keys in (("missing", missing), ("unexpected", unexpected)):
        if keys:
            more = f", ... ({len(keys)} in total)" if len(keys) > _NUM_SHOWN else ""
            yield f"{word}: {', '.join(keys[:_NUM_SHOWN])}{more}"
