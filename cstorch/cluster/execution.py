"""The running cluster of a backend, from its first program on until shutdown."""

from __future__ import annotations

import logging
import sys
from collections.abc import Collection
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from appliance.checkpoints.background_save import BackgroundSave
from appliance.coordinator.cluster import Cluster
from appliance.coordinator.commands import LoadWeights, ReadWeights, Run, Settle
from appliance.coordinator.step_results import StepResult
from appliance.elaboration.elaborate import ClusterSize, plan_installation, start_up_of
from appliance.elaboration.role_limits import check_roles
from cstorch import flags
from cstorch.cluster.config import ClusterConfig
from cstorch.cluster.fusing import CHOICES, Choice, Fusing
from cstorch.cluster.held_state import HeldState
from cstorch.cluster.job_records import JobRecords, JobTime, StepsUnderWay
from cstorch.cluster.restored import Restored, named_checkpoint
from cstorch.cluster.run_trace import RunTrace
from cstorch.cluster.starting import size_of, start_filled
from cstorch.optim.state import OptimizerState
from cstorch.remote.weights import Weights
from waferstream.compiler.compiled import Compiled
from waferstream.core.errors import ApplianceNanError, WaferStreamError
from waferstream.core.messages.watch import NOTHING
from waferstream.core.optimizer import LossScale, OptimizerSpec
from waferstream.core.program.program import ProgramKind
from waferstream.core.roles.commands import FinishSaving, Install, TrainWith
from waferstream.core.roles.installation import InputFeed, Installation
from waferstream.core.roles.names import node_name
from waferstream.core.units import format_ps
from waferstream.host.words import VENDOR_LOG
from waferstream.machine.start_up import StartUp, sizes_tried
from waferstream.management.client.jobs import JobClient

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
        self.take_config(config, job_client)
        self._seed = seed
        self._check_loss = check_loss
        self.cluster: Cluster | None = None
        self._num_activation_servers = 0  # of the cluster
        self.start_up: StartUp | None = None
        """Start-up of the emulated machine with the program that started the cluster."""
        self.training: Installation | None = None
        """The last training program that was installed."""
        self.restored: Restored | None = None
        self._writes: dict[ProgramKind, tuple[str, ...]] = {}  # buffers that a program writes
        self.held = HeldState()
        self.kernels: dict[str, Choice] = {}
        """Which kernels of a kind of program are compiled, where that is asked for."""
        self.saving: BackgroundSave | None = None
        """The last checkpoint that the weight servers began to write beside the training."""
        self.jobs = JobRecords()
        """The compiles and executions so far."""
        self._under_way: StepsUnderWay | None = None
        self.trace = RunTrace(config.trace_limit)
        """The activities of this process and its cluster, as far as they are recorded."""
        self.watch = NOTHING
        """What the cluster watches while it trains."""
        self.has_failed = False
        """Whether the cluster has ended with a job that failed or was interrupted."""
        self.returns_values = True
        """Whether a job that fails gives its values back to the user's process."""

    def take_config(self, config: ClusterConfig, job_client: JobClient) -> None:
        """Take the settings of a cluster that does not run yet, and the jobs that ask for it."""
        self._config = config
        self._job_client = job_client
        self._time = JobTime(config.job_time_sec)

    def newest_of(self, *, updates: bool) -> int:
        """Return the newest step that has begun, 0 if none of those is under way."""
        cluster, under_way = self.cluster, self._under_way
        if cluster is None or under_way is None or under_way.kind.updates != updates:
            return 0
        return under_way.newest(cluster.newest_step())

    def restore(self, path: Path, states: Collection[str], strict: bool) -> dict[str, Any]:
        """Name the checkpoint to start from; return its states that are not tensors.

        Raises:
            CheckpointError: The checkpoint is damaged.
        """
        self.restored, objects = named_checkpoint(path, states, strict)
        self.kernels = objects.get(CHOICES, {}) if "optimizer" in states else {}
        return objects

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
            self.held.reload(self.restored)

    @property
    def saved_state(self) -> Restored | None:
        """The checkpoint to start from, if an optimizer is to take its state."""
        restored = self.restored
        if self.held.state is not None or restored is None:
            return None
        return restored if "optimizer" in restored.states else None

    def fetch(self, name: str, state: str = "model") -> np.ndarray:
        """Return the current value of a tensor from MemoryX, or from the restored checkpoint.

        Raises:
            WaferStreamError: The value ended with the cluster.
        """
        if self.cluster is not None:
            return self.cluster.do(ReadWeights([name], state))[name]
        if self.restored is None:
            raise WaferStreamError(
                "a weight was read after the cluster had ended",
                code="weight-read-after-shutdown",
                where=name,
                rule="MemoryX holds the trained weights, until backend.shutdown()",
                remedy="read or save model.state_dict() before, or load a checkpoint",
            )
        return self.restored.tensor(name, state)

    def install(
        self,
        compiled: Compiled,
        feed: InputFeed,
        optimizer: OptimizerSpec | None,
        weights: Weights,
        state: OptimizerState | None,
        compile_dir: Path | None = None,
        num_steps: int = 1,
    ) -> None:
        """Install a program on the cluster; the first one starts the cluster and sends the weights.

        The ``state`` of the optimizer goes to MemoryX; that of another one returns from there. If
        starting fails there is no cluster afterwards, so that it can be tried again. Kernels are
        compiled into ``compile_dir`` if a run of ``num_steps`` steps asks for it.
        """
        size = size_of(self._config)
        if self.cluster is not None:  # the first program has decided
            size = replace(size, num_activation_servers=self._num_activation_servers)
        machine = self._config.cluster.machine
        program = compiled.program
        self._writes[program.kind] = program.state.changed
        installation = plan_installation(compiled, feed, optimizer, size, machine)
        check_roles(installation, size, flags.csx.debug.memory_limits)
        if state is not None:
            self.held.make_way(state)
        if program.kind.updates:
            self.training = installation
        runtime, began_with = self._config.cluster.runtime, self.kernels.get(program.kind)
        with closing(Fusing(compiled, runtime, compile_dir, num_steps, began_with)) as fusing:
            if self.cluster is None:
                self.cluster = self._start(installation, size, weights, fusing)
                self._num_activation_servers = installation.trips.num_servers
                self._log_start_up(installation)
            else:
                self.cluster.do(Install(fusing.finish(installation)))
            if runtime.engine.code != "eager":
                self.kernels[program.kind] = fusing.choice
        if state is not None:
            self.held.take(state, self.cluster, self.restored)

    def train_with(self, optimizer: OptimizerSpec) -> None:
        """Let further training steps end with another update of the same optimizer."""
        cluster = self.running()
        cluster.do(TrainWith(optimizer))
        if self.held.state is not None:
            self.held.take(self.held.state, cluster, self.restored)

    def run(
        self,
        kind: ProgramKind,
        first_step: int,
        last_step: int,
        weights: Weights,
        loss_scale: LossScale | None = None,
    ) -> list[StepResult]:
        """Run steps of an installed program.

        If a run fails or is interrupted, the cluster ends; weights and optimizer keep the values
        after the last step that is done, as far as the cluster still gives them. After an
        ApplianceNanError all steps were done, and the cluster stays, so that weights and losses can
        be inspected.
        """
        cluster = self.running()
        self._time.check()
        self.send_changes(weights)
        if kind.updates:
            weights.outdate()
            self.held.outdate()
        weights.state.outdate(self._writes[kind])
        self._under_way = StepsUnderWay(kind, first_step, last_step, cluster.newest_step())
        try:
            watch = self.watch if kind.updates else NOTHING
            with self._job_client.executing():
                check = self._check_loss
                results = cluster.do(Run(kind, first_step, last_step, check, loss_scale, watch))
            for name in sorted({name for result in results for name in result.stragglers}):
                log.warning("%s is a straggler: slower than the others for several steps", name)
            return results
        except ApplianceNanError:
            raise
        except BaseException as error:
            self.has_failed = True
            try:
                self._await_saving()
                self.trace.keep(cluster, error)
                if self.returns_values:
                    self._bring_back(cluster, weights, first_step - 1)
            finally:
                cluster.shutdown()
                self._job_client.end_execute(error)
            raise
        finally:
            self._under_way = None

    def _bring_back(self, cluster: Cluster, weights: Weights, before: int) -> None:
        """Fetch all weights, and the optimizer's state, where a failed job has left them whole.

        ``before`` is the step that was done before the job.
        """
        try:
            step = cluster.do(Settle())
            if step is None:
                log.warning("The job has ended during an update: its weights are lost")
                return
            weights.fetch()
            self.held.return_state(step - before)
        except WaferStreamError as error:
            log.warning("The weights of the failed job are lost: %s", error.what)
        else:
            log.info("The model has its weights after step %d", step)

    def up_to_date(self, weights: Weights) -> Cluster:
        """Return the running cluster after sending it all weights and states that were changed."""
        weights.adopt_replaced()
        self.held.adopt_replaced()
        self.send_changes(weights)
        return self.running()

    def send_changes(self, weights: Weights) -> None:
        """Send what the user's program has written to MemoryX."""
        if changes := weights.take_changes():
            log.debug("Sending %d tensors that the program has changed", len(changes))
            self.running().do(LoadWeights(changes))
        if self.held.state is not None:
            self.held.send_changes(self.running())

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
                    self.cluster.do(FinishSaving())
            finally:
                saving.abandon()  # a server that was replaced never reports

    def _await_saving(self) -> None:
        """Let the servers finish a checkpoint before they end, unless that takes too long."""
        if self.saving is not None:
            self.saving.wait_for_servers(_SAVING_S)
            self.saving.abandon()
            self.saving = None

    def _start(
        self, installation: Installation, size: ClusterSize, weights: Weights, fusing: Fusing
    ) -> Cluster:
        """Return a cluster that has its first program and its weights."""
        config = self._config
        VENDOR_LOG.info("Waiting for weight initialization to complete")  # large ones: when sent
        VENDOR_LOG.info(
            "Programming Cerebras Wafer Scale Cluster for execution. This may take a few minutes."
        )
        self._job_client.start_execute()
        self.jobs.begin_execution(
            self._job_client.newest, [node_name(index) for index in range(size.num_csx)]
        )
        self._time.begin()
        try:
            with self._job_client.executing():
                cluster = start_filled(
                    *(config, self._seed, installation, weights, self.restored),
                    fusing.finish,
                )
        except BaseException as error:
            self._job_client.end_execute(error)
            raise
        self._job_client.note_running()
        return cluster

    def _log_start_up(self, installation: Installation) -> None:
        machine = self._config.cluster.machine
        program = installation.program
        sizes = sizes_tried(flags.csx.performance.policy, program.batch_size, self._config.num_csx)
        self.start_up, checkpoint_ps = start_up_of(installation, machine, sizes)
        log.info(
            "Emulated start-up: %s; each checkpoint: %s",
            self.start_up,
            format_ps(checkpoint_ps),
        )
