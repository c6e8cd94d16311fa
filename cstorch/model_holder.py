"""The model of a program, and where its values are.

Before the first step they are in the user's process, or in the checkpoint that the program starts
from; then MemoryX holds them, and checkpoints are written from there.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from appliance.checkpoints.background_save import BackgroundSave
from appliance.coordinator.cluster import Cluster
from appliance.coordinator.commands import BeginCheckpoint, HashWeights, SaveCheckpoint
from appliance.jobs.client import JobClient
from cstorch.cluster import job_settings
from cstorch.cluster.execution import Execution
from cstorch.cluster.management import ClusterManagement
from cstorch.cluster.restored import STATES
from cstorch.cluster.run_trace import RunTrace
from cstorch.optim.state import SavedState, announce_early
from cstorch.program_settings import ProgramSettings
from cstorch.recording.loop import Loop
from cstorch.remote.weights import Weights, as_arrays
from cstorch.step_count import StepCount
from waferstream.checkpoint import MODEL
from waferstream.checkpoint.writer import append_links, append_tensors
from waferstream.compiler.capture.traced_buffers import TracedBuffers
from waferstream.core.errors import ProgramOrderError, WaferStreamError
from waferstream.core.roles.activities import Place

log = logging.getLogger("waferstream")


class ModelHolder(ProgramSettings):
    """The model of a program; arguments are those of ``ProgramSettings``.

    To remote tensors it is the holder of their values.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.has_ended = False
        self.job_client = self._new_client()
        self._execution = Execution(
            self.cluster_config, self.seed, self.check_loss, self.job_client
        )
        self.model: nn.Module | None = None
        self.weights: Weights | None = None
        self.loop: Loop | None = None
        self.have_steps_turns = False
        """Whether steps of training with optimizers of their own take turns."""
        self.has_left_loop = False
        """Whether the last loop did not come to its end, so that the program may start anew."""
        self.steps = StepCount()
        self.notices: set[str] = set()
        """What the log has said of differences to a plain loop (``cstorch.notices``)."""

    @property
    def global_step(self) -> int:
        """Steps of training that are done."""
        return self.steps.done

    @property
    def trace(self) -> RunTrace:
        """The activities of this process and its cluster, as far as they are recorded."""
        return self._execution.trace

    def take_config(self, config: job_settings.ClusterConfig) -> None:
        """Take the settings that a program gives to its executor, before the cluster starts.

        Raises:
            ProgramOrderError: The cluster runs with other settings.
        """
        resolved = self._resolved(config)
        if resolved == self.cluster_config:
            return
        if self._execution.cluster is not None:
            raise ProgramOrderError(
                "the settings of a cluster must stay while it runs",
                code="cluster-runs-with-other-settings",
                where="cs_config of DataExecutor",
                remedy="give the first executor of the program the same settings",
            )
        self.cluster_config = resolved
        self.cluster = ClusterManagement(resolved)
        self.job_client = self._new_client()
        self._execution.take_config(resolved, self.job_client)

    def _new_client(self) -> JobClient:
        queue = self.cluster_config.cluster.runtime.queue
        return JobClient(self.cluster_config.job_request, queue, self.cluster.join_workflow)

    def register(self, model: nn.Module) -> None:
        """Register the model whose weights MemoryX will hold; one per backend."""
        if self.model is not None and self.model is not model:
            raise WaferStreamError(
                "a second model is compiled in one process",
                code="second-model",
                rule="one model per backend",
            )
        if self.weights is None:
            self.model, self.weights = model, Weights(model, self)
            self._execution.outdate_restored(self.weights)
            announce_early(self)

    def return_model(self) -> None:
        """Turn model and optimizer into ordinary ones with their newest values. Idempotent.

        Where those have ended with a cluster that failed, they keep what this process has.
        """
        if self.weights is None or self.has_ended:
            return
        try:
            self.weights.fetch()
            self._execution.held.return_state()
        except WaferStreamError as error:
            log.warning(
                "The trained weights are lost (%s): the model has those that this process has "
                "read last, which are the initial ones where it has read none",
                error.what,
            )
            self._execution.held.lose()
        self.weights.make_plain()

    def unregister(self) -> None:
        """Forget the registered model, so that a capture can register it at another depth."""
        self.model = self.weights = None

    def traced_buffers(self) -> TracedBuffers:
        """Return the buffers that a step may write, for one trace."""
        return self._registered().state.traced()

    def constants(self) -> list[tuple[torch.Tensor, int]]:
        """Return the buffers that programs read as constants, and how often each was written."""
        return self._registered().state.constants()

    def adopt_state(self, names: Collection[str]) -> bool:
        """Let the cluster hold buffers; return whether one was a constant until now."""
        return self._registered().state.adopt(names)

    def settle(self) -> None:
        """Run the steps of the current loop that were called and have not run yet."""
        if self.loop is not None:
            self.loop.run_pending()

    def fetch(self, name: str, state: str = "model") -> np.ndarray:
        """Return the current value of a tensor from MemoryX, or from the restored checkpoint.

        Raises:
            WaferStreamError: The value ended with the cluster.
        """
        return self._execution.fetch(name, state)

    @property
    def saved_state(self) -> SavedState | None:
        """The optimizer state of the checkpoint to start from, until an optimizer has taken it."""
        return self._execution.saved_state

    def restore(
        self, path: Path, states: Collection[str] = STATES, strict: bool = True
    ) -> dict[str, Any]:
        """Start from a checkpoint, which the weight servers read when the cluster starts.

        Args:
            path: The checkpoint.
            states: Which of its states to restore, of ``STATES``.
            strict: Whether its weights must be exactly those of the model.

        Returns:
            The states of the checkpoint that are not tensors.

        Raises:
            CheckpointError: The checkpoint is damaged.
        """
        objects = self._execution.restore(path, states, strict)
        if "global_step" in states:
            self.steps.restore(int(objects.get("global_step", 0)))
        if self.weights is not None:
            self._execution.outdate_restored(self.weights)
        return objects

    def note_loaded(self, updates: int | None = None, skips: int | None = None) -> None:
        """Note that a program has loaded states, before its first loop; see ``StepCount``."""
        if self.loop is None:
            self.steps.note_loaded(updates, skips)

    def reload(self) -> None:
        """Read the checkpoint named by ``restore`` into a cluster that runs already."""
        if self.weights is not None:
            self._execution.reload(self.weights)

    def save(self, path: Path, states: Collection[str], objects: dict[str, Any]) -> None:
        """Write ``states`` of the cluster and plain ``objects`` to a new file.

        The state ``model`` has all names of ``model.state_dict()``: this process writes buffers,
        and links for tied names.
        """
        with self.trace.log.during("save", Place(step=self.global_step)):
            cluster, objects = self._prepare_save(path, states, objects)
            cluster.do(SaveCheckpoint(path.absolute(), states, objects))

    def begin_save(
        self, path: Path, states: Collection[str], objects: dict[str, Any]
    ) -> BackgroundSave:
        """Begin to write a new file as ``save`` does, and return what completes it.

        Steps may run meanwhile: what is written are the values of now.
        """
        with self.trace.log.during("begin save", Place(step=self.global_step)):
            cluster, objects = self._prepare_save(path, states, objects)
            servers = cluster.do(BeginCheckpoint(path.absolute(), states))
        self._execution.saving = BackgroundSave(path.absolute(), servers, objects)
        self.trace.note_save(self._execution.saving)
        return self._execution.saving

    def finish_saving(self) -> None:
        """Wait until the weight servers have written what ``begin_save`` has begun."""
        self._execution.finish_saving()

    def _prepare_save(
        self, path: Path, states: Collection[str], objects: dict[str, Any]
    ) -> tuple[Cluster, dict[str, Any]]:
        """Write what this process has; return the cluster, and all states that are no tensors."""
        if "optimizer" in states and self.have_steps_turns:
            raise WaferStreamError(
                "a checkpoint has the state of one optimizer, and steps take turns",
                code="checkpoint-of-steps-in-turn",
                rule="MemoryX holds the state of the optimizer that has stepped last",
                remedy="save model.state_dict() and the state_dict() of each optimizer",
            )
        cluster, weights = self._up_to_date(), self._registered()
        held = self._execution.held.state
        if "optimizer" in states and held is not None:
            objects = {**objects, "optimizer": held.description()}
        if "model" in states:
            append_tensors(path, MODEL, as_arrays(weights.buffers()))
            append_links(path, MODEL, weights.tied())
        return cluster, objects

    def holds(self, state_dict: Mapping[str, Any]) -> bool:
        """Return whether a dict has every parameter of the model, as MemoryX holds it."""
        return self.weights is not None and self.weights.are_in(state_dict)

    def holds_state(self, optimizer_dict: Mapping[str, Any]) -> bool:
        """Return whether the state dict of an optimizer is what MemoryX holds."""
        held = self._execution.held.state
        return held is not None and held.holds(optimizer_dict.get("state", {}))

    def weights_digest(self) -> str:
        """Return the SHA-256 of the weights that MemoryX holds now."""
        return self._up_to_date().do(HashWeights())

    def _up_to_date(self) -> Cluster:
        """Return the running cluster, which has all weights that the program has changed."""
        self._execution.running()
        return self._execution.up_to_date(self._registered())

    def _registered(self) -> Weights:
        assert self.weights is not None, "a step is installed after its model is registered"
        return self.weights
