"""Wrap the roles of a cluster, and repair it after a failure as ``Policy`` decides.

To the coordinator these are ``Roles`` like all others. When a call fails, the cluster is made whole
again and the call goes on: a job after its last finished step, any other call from the start.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from typing import Any

from appliance.coordinator.roles import RecoverableRoles
from appliance.recovery.policy import LOST_HOST, Policy
from appliance.recovery.states import State, Story
from waferstream.core.errors import ApplianceCorruptionError, CheckpointError, WaferStreamError
from waferstream.core.events import Recovered, RecoveryDecided, SystemsReturned
from waferstream.core.program.program import ProgramKind
from waferstream.core.roles.activities import RECOVER, Interval, Place
from waferstream.core.roles.commands import Install, ReadProgress, Rollback, TrainWith
from waferstream.core.roles.installation import Installation
from waferstream.core.roles.names import COORDINATOR, server_name
from waferstream.core.roles.role import Command, Job, Progress, Report, RoleSpec
from waferstream.core.roles.verification import Dispute, DisputedBitsError

Elaborate = Callable[[int], Sequence[RoleSpec]]
"""Returns the specs of all roles for a number of systems."""

WRONG = "wrong-bits"
"""Code of the error of a system that has computed wrong bits."""


class SupervisedRoles:
    """Roles of one cluster, with recovery.

    Args:
        roles: The roles; they are whole.
        elaborate: How to build a cluster of as many systems, and of fewer.
        num_servers: The weight servers.
        policy: What to do after a failure.
    """

    def __init__(
        self, roles: RecoverableRoles, elaborate: Elaborate, num_servers: int, policy: Policy
    ) -> None:
        self._roles = roles
        self._elaborate = elaborate
        self._servers = [server_name(index) for index in range(num_servers)]
        self._policy = policy
        self._num_csx = policy.num_csx  # of the cluster as it is built
        self._built = {spec.name: spec for spec in elaborate(policy.num_csx)}
        self._ready = set(self._built)  # roles with all programs, for as many systems
        self._attempts = count(1)
        self._installed: dict[ProgramKind, Installation] = {}
        self._jury = Jury()
        self.story = Story()

    def run(self, job: Job) -> list[Report]:
        self._grow(job)
        self._roles.prepare()
        salvage = Salvage()
        attempt = self._attempt_of(job)
        while True:
            try:
                reports = self._roles.run(attempt)
            except WaferStreamError as error:
                with salvage.recovering(job.kind, error.what):
                    rest = self._recovered(error, attempt, salvage)
                assert rest is not None, "a job has a rest: its last step at least"
                attempt = rest
            else:
                self._policy.note_steps(len(attempt.steps))
                return [*reports, salvage.report]

    def do(self, to: Collection[str] | None, command: Command[Any]) -> dict[str, Any]:
        match command:
            case Install(installation):
                self._installed[installation.kind] = installation
            case TrainWith(optimizer):
                trained = replace(self._installed[ProgramKind.TRAIN], optimizer=optimizer)
                self._installed[ProgramKind.TRAIN] = trained
        while True:
            try:
                return self._roles.do(to, self._fitted(command))
            except CheckpointError:  # of a file: all roles are there, and may do something else
                raise
            except WaferStreamError as error:
                self._recovered(error, None, Salvage())

    def settle(self, servers: Collection[str]) -> frozenset[int]:
        return self._roles.settle(servers)

    def shutdown(self) -> None:
        self._roles.shutdown()

    def _attempt_of(self, job: Job) -> Job:
        verification = replace(job.verification, dispute=self._jury.dispute)
        return replace(job, attempt=next(self._attempts), verification=verification)

    def _fitted(self, command: Command[Any]) -> Command[Any]:
        """Return a command for the systems that the cluster has now."""
        if not isinstance(command, Install):
            return command
        rounds = replace(command.installation.rounds, num_nodes=self._num_csx)
        return Install(replace(command.installation, rounds=rounds))

    def _recovered(self, error: WaferStreamError, job: Job | None, salvage: Salvage) -> Job | None:
        """Make the cluster whole again after a failure; return the rest of the job.

        Raises:
            WaferStreamError: ``error``, or that of a later failure, if recovery is given up.
        """
        while True:
            self.story.enter(State.ABORTING)
            lost = {**self._roles.abort(), **self._jury.judge(error)}
            self.story.enter(State.DECIDING)
            cause = next((each for each in lost.values() if each.code in LOST_HOST), None)
            cause = cause or next(iter(lost.values()), error)
            wrong = [system for system in lost if lost[system].code == WRONG]
            decision = self._policy.decide(cause, lost, wrong)
            action, why = decision.action, decision.why
            self.story.tell(RecoveryDecided(cause.what, tuple(lost), action, why))
            if decision.action == "give up":
                self.story.enter(State.GIVEN_UP)
                raise self._policy.final_error(cause)
            try:
                rest = self._whole_again(lost, job, salvage)
            except WaferStreamError as again:
                error = again
                continue
            step = None if rest is None else rest.first_step
            self.story.tell(Recovered(self.story.parts.duration, step))
            return rest

    def _whole_again(self, lost: Collection[str], job: Job | None, salvage: Salvage) -> Job | None:
        """Replace lost roles and take back the unfinished step; return the rest of the job."""
        self.story.enter(State.REBUILDING)
        self._build(lost)
        self.story.enter(State.ROLLING_BACK)
        rest = job
        if job is not None:
            progress = self._roles.do(self._servers, ReadProgress())
            rest = salvage.take(job, list(progress.values()))
            self._roles.do(self._servers, Rollback(job.attempt, rest.first_step - 1))
            self._policy.note_steps(rest.first_step - job.first_step)
            rest = self._attempt_of(rest)
        self.story.enter(State.RUNNING)
        self._roles.prepare()
        return rest

    def _build(self, lost: Collection[str]) -> None:
        """Let the cluster consist of living and new roles, as many systems as the policy says.

        A failure on the way leaves new roles unbuilt, or without programs; the next call goes on.
        """
        specs = {spec.name: spec for spec in self._elaborate(self._policy.num_csx)}
        self._built = {
            name: spec
            for name, spec in self._built.items()
            if name not in lost and specs.get(name) == spec
        }
        self._ready &= self._built.keys()
        if lost:
            self._jury.dismiss()
        if self._policy.num_csx != self._num_csx:
            self._num_csx = self._policy.num_csx
            self._ready.clear()
            self._jury.dismiss()
        self._roles.rebuild(list(specs.values()), specs.keys() - self._built.keys())
        self._built = specs
        for installation in self._installed.values():
            new = sorted(specs.keys() - self._ready)
            self._roles.do(new, self._fitted(Install(installation)))
        self._ready = set(specs)

    def _grow(self, job: Job) -> None:
        """Take back systems that were tainted and have rested, before a job."""
        if self._policy.size_of_next_job() == self._num_csx:
            return
        self.story.enter(State.ABORTING)
        lost = self._roles.abort()
        self.story.enter(State.DECIDING)
        try:
            self._whole_again(lost, None, Salvage())
        except WaferStreamError as error:
            self._recovered(error, None, Salvage())
        self.story.tell(SystemsReturned(self._num_csx, job.first_step))


class Jury:
    """The open dispute of a run, if there is one."""

    def __init__(self) -> None:
        self.dispute: Dispute | None = None

    def judge(self, error: WaferStreamError) -> dict[str, WaferStreamError]:
        """Return the systems that cannot be trusted after a failure, each with its error.

        A second failure on the same unit has the votes of the first one, and ends the dispute.
        """
        if not isinstance(error, DisputedBitsError):
            return {}
        before, self.dispute = self.dispute, error.dispute
        if before is None or before.unit != error.dispute.unit:
            return {}
        self.dispute = None
        wrong = error.dispute.wrong()
        return {
            system: _untrusted(system, error.dispute, wrong)
            for system in wrong or error.dispute.systems
        }

    def dismiss(self) -> None:
        """Close the dispute: the systems that have voted are not there any more."""
        self.dispute = None


def _untrusted(system: str, dispute: Dispute, wrong: Collection[str]) -> WaferStreamError:
    step, round_index, _ = dispute.unit
    ballots = ", ".join(f"{b.system}: {b.digest.hex()}" for b in dispute.ballots)
    what = "computed wrong bits" if wrong else "may have computed wrong bits"
    return ApplianceCorruptionError(
        f"{system} {what}",
        code=WRONG if wrong else "bits-undecided",
        where=f"step {step}, round {round_index}",
        value=ballots,
        rule="every system computes the same bits (runtime.verify)",
        remedy="check that system",
    )


class Salvage:
    """Results of the finished steps of one job, over all its attempts."""

    def __init__(self) -> None:
        self.report = Report(COORDINATOR)

    @contextmanager
    def recovering(self, kind: ProgramKind, why: str) -> Iterator[None]:
        """Report the time of a block as that of a recovery, for traces."""
        start_ns = time.perf_counter_ns()
        yield
        end_ns = time.perf_counter_ns()
        self.report.intervals.append(Interval(RECOVER, start_ns, end_ns, Place(kind), why))

    def take(self, attempt: Job, found: Sequence[Progress | None]) -> Job:
        """Keep what the weight servers know of an attempt; return the rest of the job.

        The last step of a job is never done: its results are not in the servers.

        Args:
            attempt: The interrupted job.
            found: What each weight server knows, perhaps only of an earlier attempt.
        """
        known = [one for one in found if one is not None and one.attempt == attempt.attempt]
        done = attempt.first_step - 1
        if len(known) == len(found) or not attempt.kind.updates:
            applied = min((one.applied_step for one in known), default=done)
            kept = max((one.kept_step for one in known), default=done)
            done = max(done, min(applied, kept, attempt.last_step - 1))
        for one in known:
            self._keep(one.report, done)
        scale = self.report.loss_scales.get(done, attempt.loss_scale)
        return replace(attempt, first_step=done + 1, loss_scale=scale)

    def _keep(self, found: Report, done: int) -> None:
        """Add what belongs to finished steps, once."""
        mine = self.report
        mine.results |= {key: v for key, v in found.results.items() if key[0] <= done}
        mine.norms |= {step: norm for step, norm in found.norms.items() if step <= done}
        mine.loss_scales |= {step: s for step, s in found.loss_scales.items() if step <= done}
        for step, norms in found.step_norms.items():  # every server has those of its parameters
            if step <= done:
                mine.step_norms.setdefault(step, {}).update(norms)
        new = (one for one in found.findings if one.step <= done and one not in mine.findings)
        mine.findings += new
