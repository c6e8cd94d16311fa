"""The backend: the device of a user's program, and the cluster behind it.

It holds the model and the loop of the program; ``ProgramSettings`` holds what the user has set, and
``Execution`` the running cluster. There is one backend per process (``cstorch.current``).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from appliance.background_save import BackgroundSave
from appliance.cluster import Cluster
from appliance.jobs.client import JobClient
from appliance.step_results import StepResult
from cstorch.cluster.execution import Execution
from cstorch.cluster.job_records import JobRecords
from cstorch.cluster.restored import STATES
from cstorch.cluster.run_trace import RunTrace
from cstorch.optim.state import OptimizerState, SavedState, announce_early
from cstorch.program_settings import ProgramSettings
from cstorch.remote.weights import Weights, as_arrays
from cstorch.step_count import StepCount
from cstorch.terminal import report_text
from cstorch.tracing.loop import Loop
from cstorch.tracing.recorder import active_recorder
from timing.attribution import StepTiming
from timing.program_report import ProgramReport
from timing.start_up import StartUp
from wsc.checkpoint import MODEL
from wsc.checkpoint.writer import append_links, append_tensors
from wsc.compiler.compiled import Compiled
from wsc.compiler.traced_buffers import TracedBuffers
from wsc.core.activities import Place
from wsc.core.errors import WaferStreamError
from wsc.core.installation import InputFeed, Installation
from wsc.core.loss_scale import LossScale
from wsc.core.optimizer import OptimizerSpec
from wsc.core.program import Mode
from wsc.core.watch import Watch


class Backend(ProgramSettings):
    """A CSX backend, made by ``cstorch.backend``; arguments are those of ``ProgramSettings``.

    ``HostBackend`` derives those for CPU and GPU.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.timings: list[StepTiming] = []
        """Emulated times of all steps of training."""
        self.program_reports: list[ProgramReport] = []
        """What was compiled or validated where nothing is executed."""
        self.has_ended = False
        self.job_client = JobClient(
            self.cluster_config.job_request,
            self.cluster_config.cluster.runtime.queue,
            self.cluster.join_workflow,
        )
        self._execution = Execution(
            self.cluster_config, self.seed, self.check_loss, self.job_client
        )
        self.model: nn.Module | None = None
        self.weights: Weights | None = None
        self.loop: Loop | None = None
        self.installed: dict[Mode, tuple[object, object]] = {}  # traced step and source by mode
        self.steps = StepCount()

    @property
    def global_step(self) -> int:
        """Steps of training that are done."""
        return self.steps.done

    @property
    def newest_step(self) -> int:
        """The newest step of training that is done or has begun; may be read from any thread."""
        return max(self.global_step, self._execution.newest_of("train"))

    @property
    def newest_batch(self) -> int:
        """The newest batch of the running evaluation that has begun; may be read as the step."""
        return self._execution.newest_of("eval")

    @property
    def _impl(self) -> Backend:
        """This backend: the vendor's holds another object under this name."""
        return self

    @property
    def running_cluster(self) -> Cluster | None:
        """The running cluster, None before the first traced step and after the end."""
        return self._execution.cluster

    @property
    def watch(self) -> Watch:
        """What the cluster watches while it trains: nothing by default."""
        return self._execution.watch

    @watch.setter
    def watch(self, watch: Watch) -> None:
        self._execution.watch = watch

    @property
    def jobs(self) -> JobRecords:
        """The compiles and executions so far."""
        return self._execution.jobs

    @property
    def trace(self) -> RunTrace:
        """The activities of this process and its cluster, as far as they are recorded."""
        return self._execution.trace

    @property
    def start_up(self) -> StartUp | None:
        """Start-up of the emulated machine with the program that started the cluster."""
        return self._execution.start_up

    @property
    def training(self) -> Installation | None:
        """The training program as the cluster runs it, also after its end."""
        return self._execution.training

    @property
    def is_tracing(self) -> bool:
        """Whether the body of a traced step is being recorded."""
        return active_recorder.get() is not None

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

    def install(
        self,
        compiled: Compiled,
        feed: InputFeed,
        optimizer: OptimizerSpec | None,
        state: OptimizerState | None = None,
    ) -> None:
        """Install a program on the cluster; the first one starts the cluster and sends the weights.

        MemoryX takes the ``state`` of the optimizer. If starting fails there is no cluster
        afterwards, so that it can be tried again.
        """
        self.installed.pop(compiled.program.mode, None)  # soon no longer installed in all roles
        what = "install" if self.running_cluster else "start"
        with self.trace.log.during(what, Place(compiled.program.mode)):
            self._execution.install(compiled, feed, optimizer, self._registered(), state)

    def train_with(self, optimizer: OptimizerSpec) -> None:
        """Let further training steps end with another update of the same optimizer."""
        self._execution.train_with(optimizer)

    def run(
        self, mode: Mode, first_step: int, last_step: int, loss_scale: LossScale | None = None
    ) -> list[StepResult]:
        """Run steps of an installed program; ApplianceError when the time of the job is over.

        If a run fails or is interrupted, the cluster ends, since it is unknown which of the steps
        were done. After an ApplianceNanError all of them were done, and the cluster stays, so that
        weights and losses can be inspected.
        """
        what = "train" if mode == "train" else "evaluate"
        steps = f"steps {first_step} to {last_step}"
        with self.trace.log.during(what, Place(mode, first_step), steps):
            weights = self._registered()
            results = self._execution.run(mode, first_step, last_step, weights, loss_scale)
        if mode == "train":
            self.steps.done = last_step
            self.timings += [result.timing for result in results if result.timing]
        return results

    def save(self, path: Path, states: Collection[str], objects: dict[str, Any]) -> None:
        """Write ``states`` of the cluster and plain ``objects`` to a new file.

        The state ``model`` has all names of ``model.state_dict()``: this process writes buffers,
        and links for tied names.
        """
        with self.trace.log.during("save", Place(step=self.global_step)):
            cluster, objects = self._prepare_save(path, states, objects)
            cluster.save(path.absolute(), states, objects)

    def begin_save(
        self, path: Path, states: Collection[str], objects: dict[str, Any]
    ) -> BackgroundSave:
        """Begin to write a new file as ``save`` does, and return what completes it.

        Steps may run meanwhile: what is written are the values of now.
        """
        with self.trace.log.during("begin save", Place(step=self.global_step)):
            cluster, objects = self._prepare_save(path, states, objects)
            servers = cluster.begin_save(path.absolute(), states)
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
        return self._up_to_date().digest()

    def shutdown(self) -> None:
        """End the cluster and allow another backend. Idempotent."""
        self._execution.shutdown()
        self.has_ended = True

    def report(self) -> str:
        """Return a few lines about the steps of training: emulated start-up, rate and causes."""
        machine = self.cluster_config.machine_name if self.is_csx else str(self.backend_type)
        return report_text(machine, self.global_step, self.start_up, self.timings)

    def end_idle(self) -> None:
        """Fetch all weights into the model, then shut down. Idempotent.

        Raises:
            RuntimeError: A loop runs.
        """
        if self.loop is not None:
            raise RuntimeError("the backend cannot end: its executor loop runs")
        if self.weights is not None and self.running_cluster is not None:
            self.weights.fetch()
        self.shutdown()

    def write_trace(self, path: Path) -> list[str]:
        """Write emulated and measured activities so far as a Perfetto trace.

        Returns:
            What ``ClusterConfig.record_limit`` has cut, and what roles have lost, as sentences.

        Raises:
            WaferStreamError: ``ClusterConfig.record`` is off, or no cluster runs.
        """
        return self.trace.write(path, self._execution.running)

    def _up_to_date(self) -> Cluster:
        """Return the running cluster, which has all weights that the program has changed."""
        self._execution.running()
        return self._execution.up_to_date(self._registered())

    def _registered(self) -> Weights:
        assert self.weights is not None, "a step is installed after its model is registered"
        return self.weights
