"""The coordinator: controls the roles of one running cluster.

It starts jobs, reduces the reports of the nodes to one result per step, advances the emulated
clock, and lets the weight servers save, restore and return weights. It reaches roles only through
the protocol ``Roles``, which ``LocalRoles`` (this process) and ``RayRoles`` (actors) implement.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch

from appliance.background_save import BackgroundSave
from appliance.norm_results import NormKernels
from appliance.step_results import combine
from appliance.step_state import StateHolder, steps_per_job
from memoryx.optim.cost import update_cost, waits_for_all
from simulator.cluster_timing import ClusterTiming
from simulator.costed_program import CostedProgram
from timing.attribution import StepTiming
from timing.timeline import Occupancy
from wsc.checkpoint import CLUSTER_STATES
from wsc.checkpoint.writer import reserve_tensors
from wsc.core.digest import weights_digest
from wsc.core.errors import ApplianceNanError, ApplianceRuntimeServerError, ConfigError
from wsc.core.installation import Installation
from wsc.core.loss_scale import LossScale
from wsc.core.messages import server_name
from wsc.core.optimizer import OptimizerSpec
from wsc.core.program import Mode, Program, TensorSpec, assign_servers
from wsc.core.role import Interval, Job, Report, Value
from wsc.core.watch import NOTHING, TensorNorms, Watch, first_of


@dataclass(frozen=True)
class StepResult:
    """One finished step.

    ``values`` are the results of the step (the loss first), those of its micro-batches combined in
    index order; tensors come back for the last step of a job only. ``gradient_norm`` is the global
    norm before clipping, None without clipping; ``loss_scale`` is that of the next step, None if it
    is fixed. ``tensor_norms`` are the norms by parameter, in master order, where they are watched.
    """

    step: int
    values: tuple[Value, ...]
    gradient_norm: float | None
    timing: StepTiming
    loss_scale: LossScale | None = None
    tensor_norms: Mapping[str, TensorNorms] = field(default_factory=dict)

    @property
    def was_skipped(self) -> bool:
        """Whether a gradient overflowed, so that the weights stayed as they were."""
        return self.loss_scale is not None and self.loss_scale.has_overflowed

    @property
    def loss(self) -> float:
        """The first result, NaN if it is no number."""
        first = self.values[0] if self.values else None
        return first if isinstance(first, float) else math.nan


@dataclass(frozen=True)
class Standing:
    """What a coordinator has learnt since its start: the buffers, and the emulated clock."""

    buffers: Mapping[str, torch.Tensor]
    timing: ClusterTiming


class Roles(Protocol):
    """The roles of one running cluster; ``server`` is the name of a weight server.

    Every method raises a WaferStreamError: the role's own, or an ApplianceRuntimeServerError for
    any other exception and for a role that died. After a failed ``run`` the roles are unusable
    and must be shut down.
    """

    def run(self, job: Job) -> list[Report]:
        """Run a job on every role; return when all have finished."""

    def install(self, installation: Installation) -> None:
        """Give every role its part of a program, in parallel where possible."""

    def train_with(self, server: str, optimizer: OptimizerSpec) -> None:
        """Call ``WeightHolder.train_with`` of one weight server."""

    def fill(self, server: str, values: Mapping[str, torch.Tensor], state: str = "model") -> None:
        """Call ``WeightHolder.fill`` of one weight server."""

    def layout(self, server: str, states: Collection[str]) -> list[TensorSpec]:
        """Call ``WeightHolder.layout`` of one weight server."""

    def save(
        self, server: str, path: Path, offsets: Mapping[str, int], is_background: bool
    ) -> None:
        """Call ``WeightHolder.save`` of one weight server."""

    def finish_saving(self, server: str) -> None:
        """Call ``WeightHolder.finish_saving`` of one weight server."""

    def restore(self, server: str, path: Path, state: str, strict: bool) -> None:
        """Call ``WeightHolder.restore`` of one weight server."""

    def masters(self, server: str, names: Sequence[str], state: str = "model") -> list[np.ndarray]:
        """Call ``WeightHolder.masters`` of one weight server."""

    def shutdown(self) -> None:
        """End every role with its processes, sockets and memory. Idempotent."""


class Coordinator:
    """Coordinator of one cluster; owns the roles from construction to ``shutdown``."""

    def __init__(
        self,
        parameters: Sequence[TensorSpec],
        num_servers: int,
        timing: ClusterTiming,
        roles: Roles,
        take_story: Callable[[], list[str]] = list,
    ) -> None:
        self._running_roles: Roles | None = roles
        self._take_story = take_story
        self._timing = timing
        self._programs: dict[Mode, Program] = {}
        self._state = StateHolder()
        self._norms = NormKernels()
        self._training: Installation | None = None
        self._reports: list[Report] = []
        self._owner = assign_servers(parameters, num_servers)
        self._servers = [server_name(index) for index in range(num_servers)]

    def install(self, installation: Installation) -> None:
        """Give every role its part of a program."""
        self._roles.install(installation)
        self._state.install(installation)
        self._norms.install(installation)
        self._load_program(installation)

    def train_with(self, optimizer: OptimizerSpec) -> None:
        """Let further training steps end with another update of the same parameters.

        Only the weight servers hear of it, so that hyper-parameters may change between steps.
        """
        before = self._training
        assert before is not None, "an update belongs to an installed training program"
        for server in self._servers:
            self._roles.train_with(server, optimizer)
        costs = {update_cost(o, before.program.parameter) for o in (before.optimizer, optimizer)}
        self._training = replace(before, optimizer=optimizer)
        if len(costs) > 1:
            self._load_program(self._training)

    def _load_program(self, installation: Installation) -> None:
        """Load a program into the emulated clock."""
        program, optimizer = installation.program, installation.optimizer
        if program.mode == "train":
            self._training = installation
        costed = CostedProgram.of(
            program,
            installation.plan,
            self._timing.machine,
            update=update_cost(optimizer, program.parameter),
            waits_for_all=waits_for_all(optimizer),
            loading=installation.feed.loading,
        )
        self._timing.load_program(costed)
        self._programs[program.mode] = program

    def run(
        self,
        mode: Mode,
        first_step: int,
        last_step: int,
        check_finite: bool = True,
        loss_scale: LossScale | None = None,
        watch: Watch = NOTHING,
    ) -> list[StepResult]:
        """Run steps ``first_step`` to ``last_step`` (from 1, inclusive) of an installed program.

        Args:
            mode: The program.
            first_step: The first step.
            last_step: The last step.
            check_finite: Whether every result must be finite, but for those of skipped steps.
            loss_scale: The loss scale of the first step, if the program's is dynamic.
            watch: What the roles watch.

        Raises:
            ApplianceNanError: A result is not finite, or gradients overflow at the smallest loss
                scale, and ``check_finite`` is set; or a value is not finite that is watched.
            ConfigError: The loss scale comes from a longer training.
            WaferStreamError: A role failed (see ``Roles``).
        """
        if loss_scale is not None:
            check_skipped(loss_scale, first_step)
        program = self._programs[mode]
        count = last_step - first_step + 1
        results: list[StepResult] = []
        for first in range(first_step, last_step + 1, steps_per_job(program) or count):
            last = min(first + (steps_per_job(program) or count) - 1, last_step)
            job = Job(mode, first, last, loss_scale, self._state.read_by(program), watch)
            self._reports = self._roles.run(job)
            results += self._step_results(job, self._reports)
            loss_scale = results[-1].loss_scale
            _check_findings(self._reports, results)
        if check_finite:
            for result in results:
                _check_result(result, mode)
        return results

    def load_weights(self, values: Mapping[str, torch.Tensor], state: str = "model") -> None:
        """Send tensors to the weight servers that own them; keep buffers here.

        Args:
            values: Tensors of ``state`` by their names in a checkpoint.
            state: The key of CLUSTER_STATES that they belong to.
        """
        if state == "model":
            self._state.fill({name: v for name, v in values.items() if name not in self._owner})
        for server, names in self._names_by_server(values, state).items():
            self._roles.fill(server, {name: values[name] for name in names}, state)

    def save(self, path: Path, states: Collection[str], objects: Mapping[str, Any]) -> None:
        """Write a new checkpoint file: the servers write their tensors, then come ``objects``.

        Args:
            path: The file; it must not hold tensors of the servers yet.
            states: Keys of CLUSTER_STATES to write.
            objects: States that are not tensors, of JSON types.

        Raises:
            CheckpointError: The file cannot be written.
        """
        servers = self.begin_save(path, states, is_background=False)
        self.finish_saving()
        save = BackgroundSave(path, servers, objects)
        save.abandon()  # who has finished without a report could not write it
        save.complete()

    def begin_save(
        self, path: Path, states: Collection[str], is_background: bool = True
    ) -> Sequence[str]:
        """Let the servers begin to write their tensors; return their names.

        Training may go on: what is written are the values of now. Each server reports beside the
        file when it has finished (``wsc.checkpoint.parts``).

        Args:
            path: The file; it must not hold tensors of the servers yet.
            states: Keys of CLUSTER_STATES to write.
            is_background: Whether training goes on, and has precedence.

        Raises:
            CheckpointError: The file cannot be written.
        """
        layouts = {server: self._roles.layout(server, states) for server in self._servers}
        offsets = reserve_tensors(path, [spec for specs in layouts.values() for spec in specs])
        for server, specs in layouts.items():
            own = {spec.name: offsets[spec.name] for spec in specs}
            self._roles.save(server, path, own, is_background)
        return self._servers

    def finish_saving(self) -> None:
        """Wait until every server has reported about the last save that was begun."""
        for server in self._servers:
            self._roles.finish_saving(server)

    def restore(self, path: Path, states: Collection[str], strict: bool) -> None:
        """Let each server read its tensors of ``states`` from a checkpoint file.

        Raises:
            CheckpointError: The file is damaged, or does not match and ``strict`` is set.
        """
        for state in CLUSTER_STATES:
            if state in states:
                for server in self._servers:
                    self._roles.restore(server, path, state, strict)

    def masters(self, names: Sequence[str], state: str = "model") -> dict[str, np.ndarray]:
        """Return copies of fp32 tensors, and of buffers.

        Args:
            names: Their names in a checkpoint.
            state: The key of CLUSTER_STATES that they belong to; ``model`` are masters and buffers.
        """
        found = self._state.arrays(names) if state == "model" else {}
        for server, owned in self._names_by_server(names, state).items():
            found.update(zip(owned, self._roles.masters(server, owned, state), strict=True))
        return found

    def standing(self) -> Standing:
        """Return a copy of what a coordinator of the same cluster needs to go on from here."""
        return copy.deepcopy(Standing(self._state.values, self._timing))

    def take_over(self, standing: Standing) -> None:
        """Go on from where a coordinator of the same cluster stood; its programs are installed."""
        taken = copy.deepcopy(standing)
        self._state.fill(taken.buffers)
        self._timing = taken.timing

    def digest(self) -> str:
        """Return the SHA-256 of all weights."""
        # One parameter at a time: Ray's object store is too small for a whole model.
        masters = (self.masters([name]) for name in sorted(self._owner))
        return weights_digest(item for master in masters for item in master.items())

    def peak_bytes(self) -> dict[str, dict[str, int]]:
        """Return the peak SRAM bytes by kind of each CS node in the last job."""
        return {report.role: report.peak_bytes for report in self._reports if report.peak_bytes}

    def activities(self) -> tuple[list[Occupancy], dict[str, list[Interval]]]:
        """Return all activities in emulated time, and those of the last job in measured time."""
        measured = {report.role: report.intervals for report in self._reports if report.intervals}
        return self._timing.occupancies, measured

    def story(self) -> list[str]:
        """Return what recovery has done since the last call, a line for each event."""
        return self._take_story()

    def shutdown(self) -> None:
        """End the roles. Idempotent."""
        if self._running_roles is not None:
            self._running_roles.shutdown()
            self._running_roles = None

    def _names_by_server(self, names: Iterable[str], state: str) -> dict[str, list[str]]:
        """Return the tensors of a state that each weight server owns, for those that own some."""
        owned: dict[str, list[str]] = {}
        for name in names:
            parameter = name if state == "model" else name.rpartition(".")[0]
            if parameter in self._owner:  # others are buffers
                owned.setdefault(self._servers[self._owner[parameter]], []).append(name)
        return owned

    @property
    def _roles(self) -> Roles:
        if self._running_roles is None:
            raise cluster_ended()
        return self._running_roles

    def _step_results(self, job: Job, reports: Sequence[Report]) -> Iterator[StepResult]:
        program = self._programs[job.mode]
        returned = {key: value for report in reports for key, value in report.results.items()}
        norms = {step: norm for report in reports for step, norm in report.norms.items()}
        scales = {step: scale for report in reports for step, scale in report.loss_scales.items()}
        tensor_norms = {n: pair for report in reports for n, pair in report.tensor_norms.items()}
        in_order = {n: tensor_norms[n] for n in program.trained if n in tensor_norms}
        step_norms = self._norms.gathered(reports)
        for step in job.steps:
            parts = [returned[step, index] for index in range(program.num_micro_batches)]
            of_norms = self._norms.results(program, step_norms[step])
            of_coordinator = {**self._state.advance(program, parts), **of_norms}
            values = combine(program, parts, of_coordinator)
            timing = self._timing.step(job.mode, step)
            watched = in_order if step == job.last_step else {}
            yield StepResult(step, values, norms.get(step), timing, scales.get(step), watched)


def cluster_ended() -> ApplianceRuntimeServerError:
    """Return the error for a call to a cluster after its end."""
    return ApplianceRuntimeServerError(
        "the cluster has ended",
        code="cluster-ended",
        rule="a job that fails or is interrupted ends its cluster",
        remedy="make a new backend and continue from a checkpoint",
    )


def check_skipped(loss_scale: LossScale, first_step: int) -> None:
    """Raise ConfigError if more steps were skipped than there are before ``first_step``."""
    if loss_scale.num_skipped_steps >= first_step:
        raise ConfigError(
            "the loss scale must belong to the training that it continues",
            code="loss-scale-of-another-run",
            where="GradScaler",
            value=f"{loss_scale.num_skipped_steps} skipped steps before step {first_step}",
            rule="at most all steps before have been skipped",
            remedy="restore global_step with the loss scale, or neither of them",
        )


def _check_findings(reports: Sequence[Report], results: Sequence[StepResult]) -> None:
    """Raise for the first value that was found not finite, but for those of skipped steps."""
    skipped = {result.step for result in results if result.was_skipped}
    findings = (f for report in reports for f in report.findings if f.step not in skipped)
    if (first := first_of(findings)) is not None:
        raise first.error()


def _check_result(result: StepResult, mode: Mode) -> None:
    """Raise unless a step was useful; one that was skipped is, as long as a smaller scale helps."""
    if result.was_skipped:
        check_scale(result.loss_scale, result.step)
    else:
        check_values(result.values, mode, result.step)


def check_values(values: Sequence[Value], mode: Mode, step: int) -> None:
    """Raise ApplianceNanError unless the scalar results of a step are finite."""
    scalars = [value for value in values if isinstance(value, float)]
    if not all(map(math.isfinite, scalars)):
        raise ApplianceNanError(
            f"the {mode} loss of step {step} is not finite",
            code="loss-not-finite",
            value=", ".join(map(str, scalars)),
            rule="losses are finite numbers",
            remedy="lower the learning rate, clip gradients (precision.max_gradient_norm), or "
            "check the data; then continue from a checkpoint of an earlier step",
        )


def check_scale(loss_scale: LossScale | None, step: int) -> None:
    """Raise ApplianceNanError if a smaller loss scale, which could help, is not allowed."""
    if loss_scale is not None and loss_scale.is_exhausted:
        raise ApplianceNanError(
            f"gradients of step {step} overflow at the smallest loss scale",
            code="loss-scale-exhausted",
            where="GradScaler",
            value=f"min_loss_scale {loss_scale.scale}",
            rule="a smaller loss scale makes gradients finite",
            remedy="check the data and the learning rate; then continue from a checkpoint of an "
            "earlier step",
        )
