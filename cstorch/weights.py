"""What a cluster begins with: the weights of the user's model, or those of a checkpoint."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path

from torch import nn

from appliance.checkpoints import check_keys
from appliance.cluster import Cluster
from wsc.checkpoint import CLUSTER_STATES, MODEL
from wsc.checkpoint.reader import Reader

log = logging.getLogger("waferstream")

STATES = (*CLUSTER_STATES, "global_step")
"""What a checkpoint can restore."""


@dataclass(frozen=True)
class Restored:
    """A checkpoint to start from, and which of its states the weight servers take."""

    path: Path
    states: frozenset[str]
    strict: bool

    @property
    def has_all_weights(self) -> bool:
        """Whether no weight of the model is left as it was initialised."""
        return "model" in self.states and self.strict


def load_weights(cluster: Cluster, model: nn.Module, restored: Restored | None) -> None:
    """Bring weights to the servers, as few as need be from this process.

    CheckpointError if the checkpoint is damaged or does not match the model.
    """
    values = {name: p.detach() for name, p in model.named_parameters()}
    if restored is None or not restored.has_all_weights:
        log.info("About to send initial weights")
        cluster.load_weights(values)
        log.info("Finished sending initial weights")
    if restored is not None:
        path, strict = restored.path, restored.strict
        if "model" in restored.states:
            check_keys(values, Reader(path).names(MODEL), strict=strict, where=str(path))
        log.info("Loading weights from checkpoint %s", path)
        cluster.restore(path, restored.states, strict)
