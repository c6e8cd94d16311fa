"""The cluster of a job: the sizes it asks for, and the weights it starts from."""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from pydantic import Field, NonNegativeInt, PositiveInt

from appliance.checkpoints import check_keys
from appliance.cluster import Cluster
from appliance.jobs.job import PRIORITIES, Request
from appliance.spec import AutoRestart, ClusterSpec, load_cluster
from cstorch.remote.weights import Weights
from timing.hardware.streams import MOST_SERVERS
from wsc.checkpoint import CLUSTER_STATES, MODEL, OPTIMIZER_STATE
from wsc.checkpoint.reader import Reader
from wsc.core.config import Config, validate
from wsc.core.errors import CheckpointError

log = logging.getLogger("waferstream")

STATES = (*CLUSTER_STATES, "global_step", "grad_scaler", "schedulers", "dataloader")
"""The states that a checkpoint can restore."""


class ClusterConfig(Config):
    """Sizes of the emulated cluster, and the cluster.yaml that describes its machine.

    Names and defaults are the vendor's (cluster_interface.md, section 2.2).
    """

    num_csx: PositiveInt = 1
    """CS systems for the job."""

    max_wgt_servers: int = Field(default=0, ge=0, le=MOST_SERVERS)
    """Weight servers; 0 takes the number that cluster.yaml gives."""

    num_workers_per_csx: NonNegativeInt = 1
    """Input workers per system; cluster.yaml bounds their total. 0 means one process for all, and
    on the emulated clock as many as ``machine.input.workers_per_system``."""

    job_labels: dict[str, str] = Field(default_factory=dict)

    job_priority: Literal["p1", "p2", "p3"] = "p2"
    """The place in the queue, p1 first, where cluster.yaml has a queue."""

    job_time_sec: PositiveInt | None = None
    """End the run with an error so many seconds after its cluster was started."""

    cluster: ClusterSpec = Field(default_factory=ClusterSpec)
    """The emulated machine and where it runs."""

    autorestart: AutoRestart | None = None
    """Whether and how often a run goes on after it has lost processes; None: never."""

    record: bool = False
    """Record the activities of every role, for ``Backend.write_trace``."""

    @property
    def machine_name(self) -> str:
        """The name of the emulated machine, such as ``4 x CS-2``."""
        return f"{self.num_csx} x {self.cluster.machine.system.name}"

    @property
    def job_request(self) -> Request:
        """What each job of the program asks for."""
        return Request(
            num_csx=self.num_csx,
            machine=self.machine_name,
            priority=PRIORITIES[self.job_priority],
            labels=self.job_labels,
        )

    def with_found_machine(self) -> ClusterConfig:
        """Return the settings with the machine of cluster.yaml, unless they name one.

        The file is looked for beside the program and in the working folder.

        Raises:
            ConfigError: The file is malformed.
        """
        if "cluster" in self.model_fields_set:
            return self
        program = getattr(sys.modules["__main__"], "__file__", None)
        folders = [Path(program).parent] if program else []
        for path in (folder / "cluster.yaml" for folder in [*folders, Path()]):
            if path.is_file():
                log.info("The machine is that of %s", path)
                return self.model_copy(update={"cluster": load_cluster(path)})
        return self

    def with_system(self, name: str) -> ClusterConfig:
        """Return the settings with another kind of system, ``CS-2`` or ``CS-3``.

        Raises:
            ConfigError: There is no such kind.
        """
        if self.cluster.machine.system.name == name:
            return self
        machine = {**self.cluster.machine.model_dump(mode="json"), "system": name}
        spec = {**self.cluster.model_dump(mode="json"), "machine": machine}
        return self.model_copy(update={"cluster": validate(ClusterSpec, spec, name)})


@dataclass(frozen=True)
class Launch:
    """What the command that runs a program (``waferstream exec``) says about its cluster."""

    cluster: ClusterSpec | None = None
    """The machine; None for the program's own."""

    is_cluster_typed: bool = False
    """Whether the machine was named on the command line, and not only found."""

    num_csx: int | None = None
    """Systems; None for the program's own number."""

    record: bool = False

    def applied_to(self, config: ClusterConfig) -> ClusterConfig:
        """Return the program's settings, changed by what was typed on the command line.

        Raises:
            ConfigError: ``num_csx`` is out of range.
        """
        changes: dict[str, Any] = {"record": config.record or self.record}
        own_machine = "cluster" in config.model_fields_set
        if self.cluster is not None and (self.is_cluster_typed or not own_machine):
            changes["cluster"] = self.cluster
        if self.num_csx is not None:
            changes["num_csx"] = self.num_csx
        return config.model_copy(update=changes)


launch: ContextVar[Launch | None] = ContextVar("launch", default=None)
"""The command that runs the program of this process; None if Python runs it."""


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

    def weight(self, name: str) -> np.ndarray:
        """Return one weight; CheckpointError if the file is damaged."""
        return self._reader[f"{MODEL}.{name}"]

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
        cluster.restore(self.path, self.states, self.strict)
        weights.outdate(self.weight_names)


def load_weights(cluster: Cluster, weights: Weights, restored: Restored | None) -> None:
    """Load weights into the servers: initial ones from this process, others from a checkpoint.

    Weights that were changed after the checkpoint was named are sent last.

    Raises:
        CheckpointError: The checkpoint is damaged or does not match the model.
    """
    changes = weights.take_changes()
    if restored is None or not restored.has_all_weights:
        log.info("About to send initial weights")
        for part in weights.initial_parts():
            if part:
                cluster.load_weights(part)
        log.info("Finished sending initial weights")
    if restored is not None:
        restored.load(cluster, weights)
        if changes:
            cluster.load_weights(changes)
    weights.note_sent()
