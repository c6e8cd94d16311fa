"""The running cluster of a backend, from its first program on until shutdown."""

from __future__ import annotations

import logging
import math
import sys
import time
from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np

from appliance.background_save import BackgroundSave
from appliance.cluster import Cluster, lanes_on, start_cluster
from appliance.elaborate import ClusterSize, plan_installation, start_up_of
from appliance.jobs.client import JobClient
from appliance.step_results import StepResult
from cstorch.cluster.config import ClusterConfig, Restored, load_weights
from cstorch.cluster.job_records import JobRecords
from cstorch.optim.state import OptimizerState
from cstorch.remote.weights import Weights
from timing.start_up import StartUp
from wsc.checkpoint.reader import Reader
from wsc.compiler.compiled import Compiled
from wsc.core.errors import (
    ApplianceNanError,
    ApplianceRuntimeJobTimeoutError,
    WaferStreamError,
)
from wsc.core.installation import InputFeed, Installation
from wsc.core.loss_scale import LossScale
from wsc.core.messages import node_name
from wsc.core.optimizer import OptimizerSpec
from wsc.core.program import Mode
from wsc.core.units import format_ps
from wsc.core.watch import NOTHING

log = logging.getLogger("waferstream")

_SAVING_S = 10.0
"""How long the end of a cluster waits for its weight servers; one that died never reports."""


class Execution:
    """The cluster that executes a backend's steps, and the checkpoint that it starts from.

    Args:
        config: Sizes and machine of the cluster.
        seed: Seed of the random ops of all steps.
        check_loss: Whether a loss that is not finite ends a job.
        job_client: The jobs of the program, of which the cluster is one.
    """

    def __init__(
        self, config: ClusterConfig, seed: int, check_loss: bool, job_client: JobClient
    ) -> None:
        self._config = config
        self._job_client = job_client
        self._seed = seed
        self._check_loss = check_loss
        self.cluster: Cluster | None = None
        self.start_up: StartUp | None = None
        """Start-up of the emulated machine with the program that started the cluster."""
        self.restored: Restored | None = None
        self._writes: dict[Mode, tuple[str, ...]] = {}  # buffers that an installed program writes
        self.optimizer_state: OptimizerState | None = None
        """That of the optimizer whose state MemoryX holds."""
        self._ends_at_s = math.inf  # of time.monotonic()
        self.saving: BackgroundSave | None = None
        """The last checkpoint that the weight servers began to write beside the training."""
        self.jobs = JobRecords()
        """The compiles and executions so far."""
        self.watch = NOTHING
        """What the cluster watches while it trains."""

    def size(self) -> ClusterSize:
        """Return the number of actors of each role."""
        config = self._config
        machine, runtime = config.cluster.machine, config.cluster.runtime
        workers = max(1, config.num_csx * config.num_workers_per_csx)
        return ClusterSize(
            num_csx=config.num_csx,
            num_servers=config.max_wgt_servers or machine.memoryx.weight_servers,
            num_workers=min(workers, runtime.input_workers, config.num_csx),
            lanes=lanes_on(runtime, config.num_csx),
            activation_bytes=runtime.activation_memory,
            has_replicas=config.autorestart is not None
            and runtime.recovery.weight_servers == "replica",
        )

    def restore(self, path: Path, states: Collection[str], strict: bool) -> dict[str, Any]:
        """Name the checkpoint to start from; returns its states that are not tensors.

        Raises:
            CheckpointError: The checkpoint is damaged.
        """
        reader = Reader(path)
        if not reader.has_checksums:
            log.info("Checkpoint %s has no checksums: damage to it would not be found", path)
        if reader.not_finite:
            log.warning(
                "Checkpoint %s has NaN or infinity in %s", path, ", ".join(reader.not_finite)
            )
        self.restored = Restored(path.absolute(), frozenset(states), strict)
        return reader.objects

    def outdate_restored(self, weights: Weights) -> None:
        """Let the weights that come from the checkpoint be read from there; read its buffers."""
        if self.restored is not None and self.cluster is None:
            weights.outdate(self.restored.weight_names)
            self.restored.load_buffers(weights.buffers())

    def reload(self, weights: Weights) -> None:
        """Read the checkpoint named by ``restore`` into a cluster that runs already."""
        if self.cluster is not None and self.restored is not None:
            weights.take_changes()  # the checkpoint replaces them
            self.restored.load_buffers(weights.buffers())
            self.restored.load(self.cluster, weights)
            if self.optimizer_state is not None and "optimizer" in self.restored.states:
                self.optimizer_state.reload(self.restored.updates)

    @property
    def saved_state(self) -> Restored | None:
        """The checkpoint to start from, if an optimizer is to take its state."""
        restored = self.restored
        if self.optimizer_state is not None or restored is None:
            return None
        return restored if "optimizer" in restored.states else None

    def fetch(self, name: str, state: str = "model") -> np.ndarray:
        """Return the current value of a tensor from MemoryX, or from the restored checkpoint.

        Raises:
            WaferStreamError: The value ended with the cluster.
        """
        if self.cluster is not None:
            return self.cluster.masters([name], state)[name]
        if self.restored is None:
            raise WaferStreamError(
                "a weight was read after the cluster had ended",
                code="weight-read-after-shutdown",
                where=name,
                rule="MemoryX holds the trained weights, until backend.shutdown()",
                remedy="read or save model.state_dict() before, or load a checkpoint",
            )
        return self.restored.weight(name)

    def install(
        self,
        compiled: Compiled,
        feed: InputFeed,
        optimizer: OptimizerSpec | None,
        weights: Weights,
        state: OptimizerState | None,
    ) -> None:
        """Install a program on the cluster; the first one starts the cluster and sends the weights.

        The ``state`` of the optimizer goes to MemoryX; that of another one returns from there. If
        starting fails there is no cluster afterwards, so that it can be tried again.
        """
        size = self.size()
        machine = self._config.cluster.machine
        program = compiled.program
        self._writes[program.mode] = tuple(spec.name for spec in program.state.writes)
        installation = plan_installation(compiled, feed, optimizer, size, machine)
        if state is not None:
            self.make_way(state)
        if self.cluster is None:
            self.cluster = self._start(installation, size, weights)
            self._log_start_up(installation)
        else:
            self.cluster.install(installation)
        if state is not None:
            self.take(state)

    def train_with(self, optimizer: OptimizerSpec) -> None:
        """Let further training steps end with another update of the same optimizer."""
        self.running().train_with(optimizer)
        if self.optimizer_state is not None:
            self.take(self.optimizer_state)

    def run(
        self,
        mode: Mode,
        first_step: int,
        last_step: int,
        weights: Weights,
        loss_scale: LossScale | None = None,
    ) -> list[StepResult]:
        """Run steps of an installed program.

        If a run fails or is interrupted, the cluster ends, since it is unknown which of the steps
        were done. After an ApplianceNanError all of them were done, and the cluster stays, so that
        weights and losses can be inspected.
        """
        cluster = self.running()
        self._check_time()
        self.send_changes(weights)
        if mode == "train":
            weights.outdate()
        weights.state.outdate(self._writes[mode])
        if mode == "train" and self.optimizer_state is not None:
            self.optimizer_state.outdate()
        try:
            watch = self.watch if mode == "train" else NOTHING
            with self._job_client.executing():
                check = self._check_loss
                results = cluster.run(mode, first_step, last_step, check, loss_scale, watch)
            for name in sorted({name for result in results for name in result.stragglers}):
                log.warning("%s is a straggler: slower than the others for several steps", name)
            return results
        except ApplianceNanError:
            raise
        except BaseException as error:
            self._await_saving()
            cluster.shutdown()
            self._job_client.end_execute(error)
            raise

    def up_to_date(self, weights: Weights) -> Cluster:
        """Return the running cluster after sending it all weights and states that were changed."""
        weights.adopt_replaced()
        if self.optimizer_state is not None:
            self.optimizer_state.adopt_replaced()
        self.send_changes(weights)
        return self.running()

    def send_changes(self, weights: Weights) -> None:
        """Send what the user's program has written to MemoryX."""
        if changes := weights.take_changes():
            log.info("Sending %d tensors that the program has changed", len(changes))
            self.running().load_weights(changes)
        if self.optimizer_state is not None:
            self._send_state(self.optimizer_state)

    def running(self) -> Cluster:
        """Return the cluster; WaferStreamError if there is none."""
        if self.cluster is None:
            raise WaferStreamError(
                "the cluster is not running",
                code="cluster-not-running",
                remedy="run a traced step in an executor loop first",
            )
        return self.cluster

    def shutdown(self) -> None:
        """End the cluster. Idempotent."""
        if self.cluster is not None:
            self._await_saving()
            self.cluster.shutdown()
            self.cluster = None
            self._job_client.end_execute(sys.exception())  # that ends the program, too
        for job in self.jobs.execute_jobs:
            job.end()
        self.restored = None

    def finish_saving(self) -> None:
        """Wait until the weight servers have written the checkpoint that they have begun."""
        saving, self.saving = self.saving, None
        if saving is not None:
            try:
                if self.cluster is not None:
                    self.cluster.finish_saving()
            finally:
                saving.abandon()  # a server that was replaced never reports

    def _await_saving(self) -> None:
        """Let the servers finish a checkpoint before they end, unless that takes too long."""
        if self.saving is not None:
            self.saving.wait_for_servers(_SAVING_S)
            self.saving.abandon()
            self.saving = None

    def _start(self, installation: Installation, size: ClusterSize, weights: Weights) -> Cluster:
        """Return a cluster that has its first program and its weights."""
        config = self._config
        log.info("Waiting for weight initialization to complete")  # of large models: when sent
        log.info(
            "Programming Cerebras Wafer Scale Cluster for execution. This may take a few minutes."
        )
        self._job_client.start_execute()
        self.jobs.begin_execution(
            self._job_client.newest, [node_name(index) for index in range(size.num_csx)]
        )
        self._ends_at_s = time.monotonic() + (config.job_time_sec or math.inf)
        try:
            with self._job_client.executing():
                cluster = self._start_filled(installation, size, weights)
        except BaseException as error:
            self._job_client.end_execute(error)
            raise
        self._job_client.note_running()
        return cluster

    def _start_filled(
        self, installation: Installation, size: ClusterSize, weights: Weights
    ) -> Cluster:
        config = self._config
        parameters = installation.program.parameters
        for kind, count in (("Weight", size.num_servers), ("Worker", size.num_workers)):
            waiting = f"Waiting for all {kind} pods to be running, current running: 0/{count}."
            log.info("Poll ingress status: %s", waiting)
        log.info("Waiting for job ingress readiness.")
        cluster = start_cluster(
            parameters, size, config.cluster, self._seed, config.record, config.autorestart
        )
        log.info("Poll ingress success: Job ingress ready")
        log.info("Preparing to execute using %d CSX", size.num_csx)
        try:
            load_weights(cluster, weights, self.restored)
            log.info("Finalizing appliance staging for the run")
            log.info("Waiting for device programming to complete")
            cluster.install(installation)
            _log_staged(config)
        except BaseException:
            cluster.shutdown()
            raise
        return cluster

    def _log_start_up(self, installation: Installation) -> None:
        machine = self._config.cluster.machine
        self.start_up, checkpoint_ps = start_up_of(installation, machine)
        log.info(
            "Emulated start-up: %s; each checkpoint: %s",
            self.start_up,
            format_ps(checkpoint_ps),
        )

    def make_way(self, state: OptimizerState) -> None:
        """Bring the state of another optimizer back before MemoryX forgets it."""
        state.adopt_replaced()
        before = self.optimizer_state
        if before is not None and before is not state:
            before.keep()
            state.keep()

    def take(self, state: OptimizerState) -> None:
        """Let MemoryX hold the state of an optimizer, whose rule has been installed."""
        self.optimizer_state = state
        state.note_installed()
        self._send_state(state)
        state.outdate()

    def _send_state(self, state: OptimizerState) -> None:
        if changes := state.take_changes():
            log.info("Sending %d tensors of the optimizer's state", len(changes))
            self.running().load_weights(changes, "optimizer")

    def _check_time(self) -> None:
        if time.monotonic() > self._ends_at_s:
            raise ApplianceRuntimeJobTimeoutError(
                "the job ran out of time",
                code="job-time-over",
                where="job_time_sec",
                value=f"{self._config.job_time_sec} s",
                remedy="raise it, or run again to continue from the last checkpoint",
            )


def _log_staged(config: ClusterConfig) -> None:
    """Log that every role has its program and weights, in the words of the vendor's client."""
    runtime = config.cluster.runtime
    network = "none (one process)" if runtime.kind == "local" else runtime.carrier
    log.info("Device programming is complete")
    log.info("Using network type: %s", network)
    log.info("Input workers are ready to stream input data")
    log.info("Appliance staging is complete")
    log.info("Beginning appliance run")
