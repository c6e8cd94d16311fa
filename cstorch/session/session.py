"""The session of a program: what it has set, its model, its cluster, and the steps that it runs.

Every door holds one: a traced program, ``run.py``, and a program for the real machine. There is one
per process (``cstorch.current``).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from appliance.coordinator.commands import LoadWeights
from appliance.coordinator.step_results import StepResult
from cstorch.cluster import job_settings
from cstorch.cluster.execution import Execution
from cstorch.cluster.restored import STATES
from cstorch.optim.state import OptimizerState, SavedState, announce_early
from cstorch.recording.gradients_between import GradientsBetween
from cstorch.recording.loop import Loop
from cstorch.session.host_steps import HostSteps
from cstorch.session.model import HeldModel, StepCount
from cstorch.session.settings import ProgramSettings
from cstorch.terminal import report_text
from waferstream.compiler.compiled import Compiled
from waferstream.core.errors import ApplianceCompilationError, ProgramOrderError
from waferstream.core.optimizer import LossScale, OptimizerSpec
from waferstream.core.program.program import Loading, ProgramKind
from waferstream.core.roles.activities import Place
from waferstream.core.roles.installation import InputFeed
from waferstream.core.tested_torch import check_torch
from waferstream.machine.attribution import TimedSteps
from waferstream.machine.program_report import ProgramReport
from waferstream.management.client.jobs import JobClient


class Session:
    """A session. To remote tensors it is the holder of their values.

    Args:
        settings: What the user has set.
    """

    def __init__(self, settings: ProgramSettings) -> None:
        self.settings = settings
        self.job_client = self._new_client()
        self.execution = Execution(
            settings.cluster_config, settings.seed, settings.check_loss, self.job_client
        )
        self.model = HeldModel(self.execution)
        self.steps = StepCount()
        self.host: HostSteps | None = None
        """Steps in this process, on CPU and GPU; None on CSX."""
        if not settings.backend_type.is_csx:
            self.host = HostSteps(settings, self.execution, self.model, self.steps)
        self.has_ended = False
        self.ends = ExitStack()
        """What else ends with the session."""
        self.loop: Loop | None = None
        self.has_left_loop = False
        """Whether the last loop did not come to its end, so that the program may start anew."""
        self.have_steps_turns = False
        """Whether steps of training with optimizers of their own take turns."""
        self.gradients = GradientsBetween()
        """The gradients that steps have left on the parameters."""
        self.installed: dict[ProgramKind, tuple[object, object]] = {}  # traced step and source
        self.given_loaders: dict[int, Any] = {}
        """Loaders for executors by the identity of what the program has given (``loader_of``)."""
        self.notices: set[str] = set()
        """What the log has said of differences to a plain loop (``cstorch.notices``)."""
        self.is_reading_noted = False  # the log says what reading results in a loop costs
        self.timed = TimedSteps()
        """Emulated time of all steps of training."""
        self.when_compiled: Callable[[Compiled, OptimizerSpec | None, Loading], None] | None = None
        """Hears of each compiled step: its program, its update, and the loader of its batches."""
        self.program_reports: list[ProgramReport] = []
        """What was compiled or validated where nothing is executed."""

    @property
    def seed(self) -> int:
        """The seed of the program's random numbers."""
        return self.settings.seed

    @property
    def global_step(self) -> int:
        """Steps of training that are done."""
        return self.steps.done

    @property
    def newest_step(self) -> int:
        """The newest step of training that is done or has begun; may be read from any thread."""
        return max(self.global_step, self.execution.newest_of(updates=True))

    @property
    def newest_batch(self) -> int:
        """The newest batch of the running evaluation that has begun; may be read as the step."""
        return self.execution.newest_of(updates=False)

    @property
    def trained(self) -> frozenset[str]:
        """The parameters that the last step of training gives a gradient."""
        if self.host is not None:
            return self.host.trained
        training = self.execution.training
        return frozenset(() if training is None else training.program.trained)

    @property
    def saved_state(self) -> SavedState | None:
        """The optimizer state of the checkpoint to start from, until an optimizer has taken it."""
        return self.execution.saved_state

    def take_config(self, config: job_settings.ClusterConfig) -> None:
        """Take the settings that a program gives to its executor, before the cluster starts.

        Raises:
            ProgramOrderError: The cluster runs with other settings.
        """
        resolved = self.settings.resolved(config)
        if resolved == self.settings.cluster_config:
            return
        if self.execution.cluster is not None:
            raise ProgramOrderError(
                "the settings of a cluster must stay while it runs",
                code="cluster-runs-with-other-settings",
                where="cs_config of DataExecutor",
                remedy="give the first executor of the program the same settings",
            )
        self.settings.use(resolved)
        self.job_client = self._new_client()
        self.execution.take_config(resolved, self.job_client)

    def _new_client(self) -> JobClient:
        config, management = self.settings.cluster_config, self.settings.cluster
        queue = config.cluster.runtime.queue
        return JobClient(config.submission, queue, management.join_workflow)

    def register(self, module: nn.Module) -> None:
        """Register the model whose weights MemoryX will hold; one per session."""
        if self.model.register(module, self):
            announce_early(self)

    def fetch(self, name: str, state: str = "model") -> np.ndarray:
        """Return the current value of a tensor from MemoryX, or from the restored checkpoint.

        Raises:
            WaferStreamError: The value ended with the cluster.
        """
        return self.execution.fetch(name, state)

    def settle(self) -> None:
        """Run the steps of the current loop that were called and have not run yet."""
        if self.loop is not None:
            self.loop.run_pending()

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
        objects = self.execution.restore(path, states, strict)
        if "global_step" in states:
            self.steps.restore(int(objects.get("global_step", 0)))
        self.model.outdate_restored()
        return objects

    def reload(self) -> None:
        """Read the checkpoint named by ``restore`` into a cluster that runs already."""
        if self.model.weights is not None:
            self.execution.reload(self.model.weights)

    def note_loaded(self, updates: int | None = None, skips: int | None = None) -> None:
        """Note that a program has loaded states, before its first loop; see ``StepCount``."""
        if self.loop is None:
            self.steps.note_loaded(updates, skips)

    def install(
        self,
        compiled: Compiled,
        feed: InputFeed,
        optimizer: OptimizerSpec | None,
        state: OptimizerState | None = None,
        num_steps: int = 1,
    ) -> None:
        """Install a program on the cluster; the first one starts the cluster and sends the weights.

        It is for a run of ``num_steps`` steps. MemoryX takes the ``state`` of the optimizer. If
        starting fails there is no cluster afterwards, so that it can be tried again.

        Raises:
            ConfigError: Another release of torch is imported than the tested one.
        """
        check_torch(torch.__version__)
        kind = compiled.program.kind
        self.installed.pop(kind, None)  # soon no longer installed in all roles
        what = "install" if self.execution.cluster else "start"
        with self.execution.trace.log.during(what, Place(kind)):
            self.execution.install(
                *(compiled, feed, optimizer, self.model.registered, state),
                *(self.settings.compile_dir, num_steps),
            )

    def feed(self, values: Mapping[str, torch.Tensor]) -> None:
        """Give the next steps the values of their inputs (``Program.step_inputs``)."""
        self.execution.running().do(LoadWeights(values))

    def run(
        self,
        kind: ProgramKind,
        first_step: int,
        last_step: int,
        loss_scale: LossScale | None = None,
    ) -> list[StepResult]:
        """Run steps of an installed program; ApplianceError when the time of the job is over.

        If a run fails or is interrupted, the cluster ends, since it is unknown which of the steps
        were done. After an ApplianceNanError all of them were done, and the cluster stays, so that
        weights and losses can be inspected.
        """
        steps = f"steps {first_step} to {last_step}"
        with self.execution.trace.log.during(kind.verb, Place(kind, first_step), steps):
            weights = self.model.registered
            results = self.execution.run(kind, first_step, last_step, weights, loss_scale)
        if kind.updates:
            self.steps.done = last_step
            self.timed.add([result.timing for result in results if result.timing])
        return results

    def report(self) -> str:
        """Return a few lines about the steps of training: emulated start-up, rate and causes."""
        kind = self.settings.backend_type
        machine = self.settings.cluster_config.machine_name if kind.is_csx else str(kind)
        return report_text(machine, self.global_step, self.execution.start_up, self.timed)

    def shutdown(self) -> None:
        """End the cluster, and allow another session. Idempotent."""
        try:
            self.execution.shutdown()
        finally:
            self.ends.close()
            self.job_client.close()
            self.has_ended = True

    def end_idle(self) -> None:
        """Make the model an ordinary one with its newest values, then shut down. Idempotent.

        Raises:
            RuntimeError: A loop runs.
            WeightsLostError: The model could not be given its newest values.
        """
        if self.loop is not None and self.loop.is_running:
            raise RuntimeError("the backend cannot end: its executor loop runs")
        self.loop = None  # one that an exception has left, and that its traceback keeps
        with ExitStack() as ends:
            ends.callback(self.shutdown)
            if self.model.module is not None:
                ends.callback(self.gradients.end, self.model.module)
            if not self.has_ended:
                self.model.make_plain()


def model_of(session: Session) -> nn.Module:
    """Return the registered model; ApplianceCompilationError if there is none."""
    if session.model.module is None:
        raise ApplianceCompilationError(
            "no model was compiled",
            code="no-model",
            remedy="call cstorch.compile(model, backend) first",
        )
    return session.model.module
