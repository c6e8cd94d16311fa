"""The backend: the device of a user's program, and the cluster behind it.

It runs the steps of the program. ``ProgramSettings`` holds what the user has set, ``ModelHolder``
the model, and ``Execution`` the running cluster. There is one backend per process
(``cstorch.current``).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from appliance.coordinator.cluster import Cluster
from appliance.coordinator.commands import LoadWeights
from appliance.coordinator.step_results import StepResult
from cstorch.cluster.job_records import JobRecords
from cstorch.model_holder import ModelHolder
from cstorch.optim.state import OptimizerState
from cstorch.recording.gradients_between import GradientsBetween
from cstorch.recording.recorder import active_recorder
from cstorch.terminal import report_text
from waferstream.compiler.compiled import Compiled
from waferstream.core.messages.watch import Watch
from waferstream.core.optimizer.loss_scale import LossScale
from waferstream.core.optimizer.spec import OptimizerSpec
from waferstream.core.program.program import Mode
from waferstream.core.roles.activities import Place
from waferstream.core.roles.installation import InputFeed, Installation
from waferstream.machine.program_report import ProgramReport
from waferstream.machine.start_up import StartUp
from waferstream.machine.timed_steps import TimedSteps


class Backend(ModelHolder):
    """A CSX backend, made by ``cstorch.backend``; arguments are those of ``ProgramSettings``.

    ``HostBackend`` derives those for CPU and GPU.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.timed = TimedSteps()
        """Emulated time of all steps of training."""
        self.gradients = GradientsBetween()
        """The gradients that steps have left on the parameters."""
        self.program_reports: list[ProgramReport] = []
        """What was compiled or validated where nothing is executed."""
        self.installed: dict[Mode, tuple[object, object]] = {}  # traced step and source by mode
        self.is_reading_noted = False  # the log says what reading results in a loop costs
        self.given_loaders: dict[int, Any] = {}
        """Loaders for executors by the identity of what the program has given (``loader_of``)."""

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
    def has_failed(self) -> bool:
        """Whether the cluster has ended with a job that failed or was interrupted."""
        return self._execution.has_failed

    @property
    def watch(self) -> Watch:
        """What the cluster watches while it trains: nothing by default."""
        return self._execution.watch

    @watch.setter
    def watch(self, watch: Watch) -> None:
        self._execution.watch = watch

    @property
    def returns_values(self) -> bool:
        """Whether a job that fails gives its values back: not where checkpoints hold them."""
        return self._execution.returns_values

    @returns_values.setter
    def returns_values(self, returns: bool) -> None:
        self._execution.returns_values = returns

    @property
    def jobs(self) -> JobRecords:
        """The compiles and executions so far."""
        return self._execution.jobs

    @property
    def start_up(self) -> StartUp | None:
        """Start-up of the emulated machine with the program that started the cluster."""
        return self._execution.start_up

    @property
    def training(self) -> Installation | None:
        """The training program as the cluster runs it, also after its end."""
        return self._execution.training

    @property
    def trained(self) -> frozenset[str]:
        """The parameters that the last step of training gives a gradient."""
        return frozenset(() if self.training is None else self.training.program.trained)

    @property
    def is_tracing(self) -> bool:
        """Whether the body of a traced step is being recorded."""
        return active_recorder.get() is not None

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

    def feed(self, values: Mapping[str, torch.Tensor]) -> None:
        """Give the next steps the values of their inputs (``Program.step_inputs``)."""
        self._execution.running().do(LoadWeights(values))

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
            self.timed.add([result.timing for result in results if result.timing])
        return results

    def shutdown(self) -> None:
        """End the cluster and allow another backend. Idempotent."""
        try:
            self._execution.shutdown()
        finally:
            self.has_ended = True

    def report(self) -> str:
        """Return a few lines about the steps of training: emulated start-up, rate and causes."""
        machine = self.cluster_config.machine_name if self.is_csx else str(self.backend_type)
        return report_text(machine, self.global_step, self.start_up, self.timed)

    def end_idle(self) -> None:
        """Make the model an ordinary one with its newest values, then shut down. Idempotent.

        Raises:
            RuntimeError: A loop runs.
        """
        if self.loop is not None and self.loop.is_running:
            raise RuntimeError("the backend cannot end: its executor loop runs")
        self.loop = None  # one that an exception has left, and that its traceback keeps
        try:
            self.return_model()
            if self.model is not None:
                self.gradients.end(self.model)
        finally:
            self.shutdown()

    def write_trace(self, path: Path) -> list[str]:
        """Write emulated and measured activities so far as a Perfetto trace.

        Returns:
            What ``ClusterConfig.record_limit`` has cut, and what roles have lost, as sentences.

        Raises:
            WaferStreamError: ``ClusterConfig.record`` is off, or no cluster runs.
        """
        return self.trace.write(path, self._execution.running)
