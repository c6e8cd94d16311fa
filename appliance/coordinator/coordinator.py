"""The coordinator: controls the roles of one running cluster.

It starts jobs, reduces the reports of the nodes to one result per step, advances the emulated
clock, and lets the weight servers save, restore and return weights. It reaches roles only through
the protocol ``appliance.coordinator.roles.Roles``, which ``LocalRoles`` (this process) and
``RayRoles`` (actors) implement.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from appliance.checkpoints.background_save import BackgroundSave
from appliance.coordinator.cluster import Standing, cluster_ended
from appliance.coordinator.emulated_clock import EmulatedClock
from appliance.coordinator.installed_programs import InstalledPrograms
from appliance.coordinator.measured_record import MeasuredRecord
from appliance.coordinator.owners import Owners
from appliance.coordinator.roles import FailureLimit, Roles
from appliance.coordinator.shares import Shares
from appliance.coordinator.step_checks import check_findings, check_result, check_skipped
from appliance.coordinator.step_results import StepResult
from appliance.coordinator.step_state import steps_per_job
from appliance.health.stragglers import Stragglers
from simulator.cluster_timing import ClusterTiming
from timing.trace import Activities
from wsc.checkpoint import CLUSTER_STATES
from wsc.checkpoint.writer import reserve_tensors
from wsc.core.digest import weights_digest
from wsc.core.messages.watch import NOTHING, Watch
from wsc.core.optimizer.loss_scale import LossScale
from wsc.core.optimizer.spec import OptimizerSpec
from wsc.core.program.program import Mode, TensorSpec
from wsc.core.roles.activities import Place
from wsc.core.roles.commands import (
    Fill,
    FinishSaving,
    Install,
    ReadLayout,
    ReadMasters,
    Restore,
    Save,
    TrainWith,
)
from wsc.core.roles.installation import Installation
from wsc.core.roles.role import Job, Report
from wsc.core.roles.verification import UNVERIFIED, Verification


class Coordinator:
    """Coordinator of one cluster; owns the roles from construction to ``shutdown``."""

    def __init__(
        self,
        parameters: Sequence[TensorSpec],
        num_servers: int,
        timing: ClusterTiming,
        roles: Roles,
        take_story: Callable[[], list[str]] = list,
        verification: Verification = UNVERIFIED,
        straggler_factor: float | None = None,
        *,
        has_measured_shares: bool = False,
        failures: FailureLimit | None = None,
    ) -> None:
        self._running_roles: Roles | None = roles
        self.look_at_steps: Callable[[], int] = int
        """Returns the newest step that roles of this process have begun, 0 if there are none."""
        self._take_story = take_story
        self._failures = failures
        self._verification = verification
        self._shares = Shares(is_measured=has_measured_shares)
        self._programs = InstalledPrograms(EmulatedClock(timing), Stragglers(straggler_factor))
        self._reports: list[Report] = []
        self._steps_of_buffers: frozenset[int] = frozenset()  # after which buffers stand
        self._measured = MeasuredRecord(0 if timing.record is None else timing.record.limit)
        self._owners = Owners(parameters, num_servers)
        self._servers = self._owners.servers

    def install(self, installation: Installation) -> None:
        """Give every role its part of a program."""
        with self._measured.log.during("install", Place(installation.mode)):
            self._roles.do(None, Install(installation))
        self._programs.install(installation)

    def train_with(self, optimizer: OptimizerSpec) -> None:
        """Let further training steps end with another update of the same parameters.

        Only the weight servers hear of it, so that hyper-parameters may change between steps.
        """
        self._roles.do(self._servers, TrainWith(optimizer))
        self._programs.train_with(optimizer)

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
        count = steps_per_job(self._programs.of(mode)) or last_step - first_step + 1
        results: list[StepResult] = []
        for first in range(first_step, last_step + 1, count):
            last = min(first + count - 1, last_step)
            results += self._run_job(self._job(mode, first, last, loss_scale, watch))
            loss_scale = results[-1].loss_scale
            check_findings(self._reports, results)
        if check_finite:
            for result in results:
                check_result(result, mode)
        return results

    def _job(
        self,
        mode: Mode,
        first_step: int,
        last_step: int,
        loss_scale: LossScale | None,
        watch: Watch,
    ) -> Job:
        """Return steps of a program as a job of the roles."""
        state = self._programs.state.read_by(self._programs.of(mode))
        most = self._measured.num_left
        job = Job(mode, first_step, last_step, loss_scale, state, watch, trace_limit=most)
        if mode == "train":
            job = replace(job, verification=self._verification, shares=self._shares.current)
        return job

    def _run_job(self, job: Job) -> list[StepResult]:
        """Let the roles run a job; return the results of its steps."""
        place = Place(job.mode, job.first_step)
        steps = f"steps {job.first_step} to {job.last_step}"
        before = frozenset({job.first_step - 1})
        after = frozenset({job.last_step}) if job.mode == "train" else before
        self._steps_of_buffers = before
        with self._measured.log.during("run", place, steps):
            self._reports = self._roles.run(job)
        self._measured.take(self._reports)
        training = self._programs.training
        if job.mode == "train" and training is not None:
            self._shares.note(self._reports, training.rounds, training.most_per_node)
        self._steps_of_buffers = before | after
        with self._measured.log.during("results", place, steps):
            results = list(self._programs.results(job, self._reports))
        self._steps_of_buffers = after
        return results

    def settle(self) -> int | None:
        """End a failed training job on all roles; return the step after which all weights stand.

        None if they differ: some of an update was done. Otherwise ``masters`` answers, too.
        """
        held = self._roles.settle(self._servers)
        if not held or self._programs.of("train").state.writes:
            held |= self._steps_of_buffers
        return next(iter(held)) if len(held) == 1 else None

    def newest_step(self) -> int:
        """Return the newest step of a running job that has begun, 0 if unknown, in any thread."""
        return self.look_at_steps()

    def load_weights(self, values: Mapping[str, torch.Tensor], state: str = "model") -> None:
        """Send tensors to the weight servers that own them; keep buffers here.

        Args:
            values: Tensors of ``state`` by their names in a checkpoint.
            state: The key of CLUSTER_STATES that they belong to.
        """
        if state == "model":
            buffers = {n: v for n, v in values.items() if not self._owners.is_owned(n)}
            self._programs.state.fill(buffers)
        for server, names in self._owners.by_server(values, state).items():
            self._roles.do([server], Fill({name: values[name] for name in names}, state))

    def save(self, path: Path, states: Collection[str], objects: Mapping[str, Any]) -> None:
        """Write a new checkpoint file: the servers write their tensors, then come ``objects``.

        Args:
            path: The file; it must not hold tensors of the servers yet.
            states: Keys of CLUSTER_STATES to write.
            objects: States that are not tensors, of JSON types.

        Raises:
            CheckpointError: The file cannot be written.
        """
        with self._measured.log.during("save"):
            servers = self.begin_save(path, states, is_background=False)
            self.finish_saving()
            save = BackgroundSave(path, servers, objects)
            save.abandon()  # who has finished without a report could not write it
            save.complete()
        self._measured.add(save.written)

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
        layouts = self._roles.do(self._servers, ReadLayout(states))
        offsets = reserve_tensors(path, [spec for specs in layouts.values() for spec in specs])
        for server, specs in layouts.items():
            own = {spec.name: offsets[spec.name] for spec in specs}
            self._roles.do([server], Save(path, own, is_background))
        return self._servers

    def finish_saving(self) -> None:
        """Wait until every server has reported about the last save that was begun."""
        self._roles.do(self._servers, FinishSaving())

    def restore(self, path: Path, states: Collection[str], strict: bool) -> None:
        """Let each server read its tensors of ``states`` from a checkpoint file.

        Raises:
            CheckpointError: The file is damaged, or does not match and ``strict`` is set.
        """
        wanted = [state for state in CLUSTER_STATES if state in states]
        with self._measured.log.during("restore"):
            for state in wanted:
                self._roles.do(self._servers, Restore(path, state, strict))

    def masters(self, names: Sequence[str], state: str = "model") -> dict[str, np.ndarray]:
        """Return copies of fp32 tensors, and of buffers.

        Args:
            names: Their names in a checkpoint.
            state: The key of CLUSTER_STATES that they belong to; ``model`` are masters and buffers.
        """
        found = self._programs.state.arrays(names) if state == "model" else {}
        for server, owned in self._owners.by_server(names, state).items():
            masters = self._roles.do([server], ReadMasters(owned, state))[server]
            found.update(zip(owned, masters, strict=True))
        return found

    def standing(self) -> Standing:
        """Return a copy of what a coordinator of the same cluster needs to go on from here."""
        copied = copy.deepcopy((self._programs.state.values, self._programs.clock))
        return Standing(*copied, self._measured.copy())

    def take_over(self, standing: Standing) -> None:
        """Go on from where a coordinator of the same cluster stood; its programs are installed."""
        buffers, self._programs.clock = copy.deepcopy((standing.buffers, standing.clock))
        self._programs.state.fill(buffers)
        self._measured = standing.measured.copy()

    def digest(self) -> str:
        """Return the SHA-256 of all weights."""
        # One parameter at a time: Ray's object store is too small for a whole model.
        masters = (self.masters([name]) for name in self._owners.parameters)
        return weights_digest(item for master in masters for item in master.items())

    def peak_bytes(self) -> dict[str, dict[str, int]]:
        """Return the peak SRAM bytes by kind of each CS node in the last job."""
        return {report.role: report.peak_bytes for report in self._reports if report.peak_bytes}

    def activities(self) -> Activities:
        """Return the recorded activities, in emulated and in measured time."""
        measured = self._measured
        return Activities(self._programs.clock.record, measured.all(), measured.num_lost)

    def story(self) -> list[str]:
        """Return what recovery has done since the last call, a line for each event."""
        return self._take_story()

    def num_failures(self) -> int:
        """Return the failures since the last finished step that recovery has met."""
        return 0 if self._failures is None else self._failures.num_failures

    def allow_failures(self, count: int) -> None:
        """Let recovery answer at most ``count`` failures in a row, from now on."""
        if self._failures is not None:
            self._failures.num_allowed = count

    def shutdown(self) -> None:
        """End the roles. Idempotent."""
        if self._running_roles is not None:
            self._running_roles.shutdown()
            self._running_roles = None

    @property
    def _roles(self) -> Roles:
        if self._running_roles is None:
            raise cluster_ended()
        return self._running_roles
