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
from appliance.coordinator.commands import (
    AllowFailures,
    AskServers,
    BeginCheckpoint,
    CountFailures,
    HashWeights,
    LoadWeights,
    ReadActivities,
    ReadPeakBytes,
    ReadStanding,
    ReadStory,
    ReadWeights,
    RestoreCheckpoint,
    Run,
    SaveCheckpoint,
    Settle,
    TakeOver,
)
from appliance.coordinator.installed_programs import InstalledPrograms, steps_per_job
from appliance.coordinator.roles import FailureLimit, Owners, Roles
from appliance.coordinator.speeds import Shares, Stragglers
from appliance.coordinator.step_results import (
    StepResult,
    check_findings,
    check_result,
    check_skipped,
)
from appliance.coordinator.times import EmulatedClock, MeasuredRecord
from waferstream.checkpoint import CLUSTER_STATES
from waferstream.checkpoint.writer import reserve_tensors
from waferstream.core.digest import weights_digest
from waferstream.core.events import RecoveryEvent
from waferstream.core.messages.watch import Watch
from waferstream.core.optimizer import LossScale, OptimizerSpec
from waferstream.core.program.program import ProgramKind, TensorSpec
from waferstream.core.roles.activities import Place
from waferstream.core.roles.commands import (
    Fill,
    FinishSaving,
    Install,
    ReadLayout,
    ReadMasters,
    Restore,
    Save,
    TrainWith,
)
from waferstream.core.roles.installation import Installation
from waferstream.core.roles.names import COORDINATOR
from waferstream.core.roles.role import Command, Job, Report, not_taken
from waferstream.core.roles.verification import UNVERIFIED, Verification
from waferstream.machine.trace import Activities
from waferstream.simulator.cluster_timing import ClusterTiming


class Coordinator:
    """Coordinator of one cluster; owns the roles from construction to ``shutdown``."""

    def __init__(
        self,
        parameters: Sequence[TensorSpec],
        num_servers: int,
        timing: ClusterTiming,
        roles: Roles,
        take_story: Callable[[], list[RecoveryEvent]] = list,
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

    def do(self, command: Command[Any]) -> Any:  # noqa: PLR0911, PLR0912 (a case for each)
        """Do what a command says; return its result."""
        match command:
            case Run():
                return self._run(command)
            case Install(installation):
                self._install(installation)
            case TrainWith(optimizer):
                self._train_with(optimizer)
            case LoadWeights(values, state):
                self._load_weights(values, state)
            case SaveCheckpoint():
                self._save(command)
            case BeginCheckpoint(path, states):
                return self._begin_save(path, states, is_background=True)
            case FinishSaving():
                self._roles.do(self._servers, command)
            case AskServers(asked):
                return self._roles.do(self._servers, asked)
            case RestoreCheckpoint():
                self._restore(command)
            case ReadWeights(names, state):
                return self._weights(names, state)
            case HashWeights():
                return self._digest()
            case ReadStanding():
                copied = copy.deepcopy((self._programs.state.values, self._programs.clock))
                return Standing(*copied, self._measured.copy())
            case TakeOver(standing):
                self._take_over(standing)
            case Settle():
                return self._settle()
            case ReadPeakBytes():
                return {each.role: each.peak_bytes for each in self._reports if each.peak_bytes}
            case ReadActivities():
                measured = self._measured
                return Activities(self._programs.clock.record, measured.all(), measured.num_lost)
            case ReadStory():
                return self._take_story()
            case CountFailures():
                return 0 if self._failures is None else self._failures.num_failures
            case AllowFailures(count):
                if self._failures is not None:
                    self._failures.num_allowed = count
            case _:
                raise not_taken(COORDINATOR, command)
        return None

    def _install(self, installation: Installation) -> None:
        with self._measured.log.during("install", Place(installation.kind)):
            self._roles.do(None, Install(installation))
        self._programs.install(installation)

    def _train_with(self, optimizer: OptimizerSpec) -> None:
        """Let training steps end with another update.

        Only the weight servers hear of it, so that hyper-parameters may change between steps.
        """
        self._roles.do(self._servers, TrainWith(optimizer))
        self._programs.train_with(optimizer)

    def _run(self, command: Run) -> list[StepResult]:
        kind, first_step, last_step = command.kind, command.first_step, command.last_step
        loss_scale = command.loss_scale
        if loss_scale is not None:
            check_skipped(loss_scale, first_step)
        count = steps_per_job(self._programs.of(kind)) or last_step - first_step + 1
        results: list[StepResult] = []
        for first in range(first_step, last_step + 1, count):
            last = min(first + count - 1, last_step)
            results += self._run_job(self._job(kind, first, last, loss_scale, command.watch))
            loss_scale = results[-1].loss_scale
            check_findings(self._reports, results)
        if command.check_finite:
            for result in results:
                check_result(result, kind)
        return results

    def _job(
        self,
        kind: ProgramKind,
        first_step: int,
        last_step: int,
        loss_scale: LossScale | None,
        watch: Watch,
    ) -> Job:
        """Return steps of a program as a job of the roles."""
        state = self._programs.state.read_by(self._programs.of(kind))
        most = self._measured.num_left
        job = Job(kind, first_step, last_step, loss_scale, state, watch, trace_limit=most)
        if kind.updates:
            job = replace(job, verification=self._verification, shares=self._shares.current)
        return job

    def _run_job(self, job: Job) -> list[StepResult]:
        """Let the roles run a job; return the results of its steps."""
        place = Place(job.kind, job.first_step)
        steps = f"steps {job.first_step} to {job.last_step}"
        before = frozenset({job.first_step - 1})
        after = frozenset({job.last_step}) if job.kind.updates else before
        self._steps_of_buffers = before
        with self._measured.log.during("run", place, steps):
            self._reports = self._roles.run(job)
        self._measured.take(self._reports)
        training = self._programs.training
        if job.kind.updates and training is not None:
            self._shares.note(self._reports, training.rounds, training.most_per_node)
        self._steps_of_buffers = before | after
        with self._measured.log.during("results", place, steps):
            results = list(self._programs.results(job, self._reports))
        self._steps_of_buffers = after
        return results

    def _settle(self) -> int | None:
        held = self._roles.settle(self._servers)
        if not held or self._programs.of(ProgramKind.TRAIN).state.writes:
            held |= self._steps_of_buffers
        return next(iter(held)) if len(held) == 1 else None

    def newest_step(self) -> int:
        """Return the newest step of a running job that has begun, 0 if unknown, in any thread."""
        return self.look_at_steps()

    def _load_weights(self, values: Mapping[str, torch.Tensor], state: str) -> None:
        if state == "model":
            buffers = {n: v for n, v in values.items() if not self._owners.is_owned(n)}
            self._programs.state.fill(buffers)
        for server, names in self._owners.by_server(values, state).items():
            self._roles.do([server], Fill({name: values[name] for name in names}, state))

    def _save(self, command: SaveCheckpoint) -> None:
        with self._measured.log.during("save"):
            servers = self._begin_save(command.path, command.states, is_background=False)
            self._roles.do(self._servers, FinishSaving())
            save = BackgroundSave(command.path, servers, command.objects)
            save.abandon()  # who has finished without a report could not write it
            save.complete()
        self._measured.add(save.written)

    def _begin_save(
        self, path: Path, states: Collection[str], *, is_background: bool
    ) -> Sequence[str]:
        """Let the servers begin to write their tensors; return their names."""
        layouts = self._roles.do(self._servers, ReadLayout(states))
        offsets = reserve_tensors(path, [spec for specs in layouts.values() for spec in specs])
        for server, specs in layouts.items():
            own = {spec.name: offsets[spec.name] for spec in specs}
            self._roles.do([server], Save(path, own, is_background))
        return self._servers

    def _restore(self, command: RestoreCheckpoint) -> None:
        wanted = [state for state in CLUSTER_STATES if state in command.states]
        with self._measured.log.during("restore"):
            for state in wanted:
                self._roles.do(self._servers, Restore(command.path, state, command.strict))

    def _weights(self, names: Sequence[str], state: str) -> dict[str, np.ndarray]:
        found = self._programs.state.arrays(names) if state == "model" else {}
        for server, owned in self._owners.by_server(names, state).items():
            masters = self._roles.do([server], ReadMasters(owned, state))[server]
            found.update(zip(owned, masters, strict=True))
        return found

    def _take_over(self, standing: Standing) -> None:
        buffers, self._programs.clock = copy.deepcopy((standing.buffers, standing.clock))
        self._programs.state.fill(buffers)
        self._measured = standing.measured.copy()

    def _digest(self) -> str:
        # One parameter at a time: Ray's object store is too small for a whole model.
        masters = (self._weights([name], "model") for name in self._owners.parameters)
        return weights_digest(item for master in masters for item in master.items())

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
