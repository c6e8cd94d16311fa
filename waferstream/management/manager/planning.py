"""The schedule of workflows: what it is told of them, and what follows from its decision."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from math import inf

from waferstream.core.errors import (
    ClusterJobScheduleError,
    ConfigError,
    RequestRefused,
    did_you_mean,
)
from waferstream.management.manager.numbers import Statistics
from waferstream.management.manager.pace import Pace
from waferstream.management.manager.situation import COMPILE, jobs_of, parts_of
from waferstream.management.model import event
from waferstream.management.model.inventory import DEFAULT_SESSION, Inventory, Session
from waferstream.management.model.operations import Caller, ClusterView, Explanation
from waferstream.management.model.workflow import Placement, Stage, Submission, Workflow
from waferstream.management.schedule.actions import Action, Expected, Pause, Resize, Start, Wait
from waferstream.management.schedule.decide import decide
from waferstream.management.schedule.explain import ForecastErrors
from waferstream.management.schedule.state import Rules, Usage
from waferstream.management.store.changes import Changes
from waferstream.management.store.views import Views

_DETAILS = re.compile(r":.*|wflow-\w+|\d+")
"""Of a reason to wait, what may change every second for a thousand workflows at once."""

_USAGE_S = 60.0
"""How long the shares of users count before they are read again."""


class Planning:
    """Joins the workflows of a store with the schedule."""

    def __init__(self, rules: Rules | None = None) -> None:
        self._rules = rules or Rules()
        self._pace = Pace()
        self._usage = Usage(at_s=-inf)
        self._waits: Mapping[str, Wait] = {}
        self._runs_s: Mapping[str, float] = {}  # of whole runs, by job
        self._errors = ForecastErrors()
        self._first_expected: dict[str, Expected] = {}  # at the submission
        self.statistics = Statistics()
        """How fast and how good decisions were."""

    def decide(self, changes: Changes, now_s: float, *, launches: bool = True) -> None:
        """Let the schedule decide, and note what it says.

        Args:
            changes: The store.
            now_s: The time.
            launches: Whether workflows can be resized, paused and compiled beside others.
        """
        inventory = changes.inventory()
        if inventory is None:
            return
        self._read_usage(changes, now_s)
        workflows = changes.workflows()
        sessions = changes.sessions()
        parts = parts_of(inventory, sessions, workflows)
        jobs = jobs_of(workflows, inventory, sessions, self._pace, now_s, launches=launches)
        forecast = self._errors.forecast()
        begin_s = time.perf_counter()
        decided = decide(now_s, parts, jobs, self._usage, self._rules, forecast)
        self.statistics.decided(time.perf_counter() - begin_s)
        self._waits = {each.job: each for each in decided if isinstance(each, Wait)}
        self._runs_s = {
            job.name: job.time_s(kind, job.num_csx, now_s)
            for job in jobs
            for kind in list(job.run_times)[:1]
        }
        by_name = {workflow.name: workflow for workflow in workflows}
        placed = {each.job for each in decided if isinstance(each, Start)}
        self._learn(placed, by_name, now_s)
        for action in decided:
            name = action.job.removesuffix(COMPILE)
            fact = _fact(action, by_name[name])
            if fact is not None and (action.job == name or name not in placed):
                changes.note(name, fact, now_s)

    def current(self, workflow: Workflow) -> Workflow:
        """Return a workflow with the reason why it waits now; events tell when its gist changes."""
        wait = self._waits.get(workflow.name) if workflow.stage is Stage.WAITING else None
        return workflow if wait is None else workflow.model_copy(update={"reason": wait.reason})

    def explain(self, workflow: Workflow) -> Explanation:
        """Return why a workflow waits, and when it is expected to start."""
        wait = self._waits.get(workflow.name)
        if wait is None:
            ended = f"it has ended: {workflow.result}" if workflow.result else ""
            return Explanation(workflow=workflow.name, reason=workflow.reason or ended, place=0)
        return self._explanation(wait)

    def explanations(self) -> list[Explanation]:
        """Return the same of all workflows that wait, in their order."""
        waits = self._waits.values()
        return [self._explanation(each) for each in waits if not each.job.endswith(COMPILE)]

    def _explanation(self, wait: Wait) -> Explanation:
        expected = {} if wait.expected is None else wait.expected._asdict()
        return Explanation(
            workflow=wait.job, reason=wait.reason, place=wait.place, sooner=wait.sooner,
            run_s=self._runs_s.get(wait.job), **expected,
        )  # fmt: skip

    def view(self, changes: Views) -> ClusterView:
        """Return the inventory, and who holds what."""
        holders = {}
        for workflow in changes.workflows():
            if workflow.placement is not None:
                names = (*workflow.placement.systems, workflow.placement.group)
                holders.update({name: workflow.name for name in names if name})
        return ClusterView(
            inventory=changes.inventory() or Inventory(systems=(), groups=()),
            sessions=tuple(changes.sessions()),
            holders=holders,
        )

    def check_fits(self, changes: Views, submission: Submission, caller: Caller) -> None:
        """Refuse what could not start on the empty appliance either.

        Raises:
            ClusterJobScheduleError: It asks for more than there is; the error says what would fit.
            RequestRefused: The session is not the caller's.
            ConfigError: There is no such session, or ``min_num_csx`` is above ``num_csx``.
        """
        inventory = changes.inventory()
        if inventory is None or not submission.is_queued:
            return
        _check_order(submission)
        check_session(changes.sessions(), submission.session, caller)
        part = next(
            part
            for part in parts_of(inventory.restored, changes.sessions(), ()).sessions
            if part.name == submission.session
        )
        kind, counts = submission.system, Counter(system.kind for system in part.systems)
        of_one_kind = max(counts.values(), default=0) if kind is None else counts[kind]
        most = of_one_kind if part.groups else 0
        if submission.least_csx > most:
            raise ClusterJobScheduleError(
                "a job must not ask for more systems than the cluster has",
                code="more-systems-than-cluster",
                where="num_csx",
                value=submission.least_csx,
                rule=f"at most {most} of {kind or 'one kind'} in session {submission.session}",
                remedy=f"lower num_csx or min_num_csx to {most}, or ask for another session",
            )

    def _learn(self, placed: set[str], workflows: Mapping[str, Workflow], now_s: float) -> None:
        """Compare starts with what was expected at the submission, and keep what is expected."""
        for name in placed & workflows.keys():
            if (expected := self._first_expected.pop(name, None)) is not None:
                self._errors.learn(workflows[name].submitted_s, expected.start_s, now_s)
                self.statistics.started(expected, now_s)
        for name, wait in self._waits.items():
            if wait.expected is not None:
                self._first_expected.setdefault(name, wait.expected)

    def _read_usage(self, changes: Views, now_s: float) -> None:
        """Add up what users have had, each decayed, once in a while."""
        if now_s - self._usage.at_s < _USAGE_S:
            return
        system_s: dict[str, float] = {}
        workflows = changes.workflows(unfinished=False)
        for workflow in workflows:
            age_s = now_s - (workflow.ended_s or now_s)
            had_s = workflow.used_system_s * 0.5 ** (age_s / self._rules.half_life_s)
            system_s[workflow.user] = system_s.get(workflow.user, 0.0) + had_s
        self._usage = Usage(now_s, system_s)
        self._pace.learn(workflows)


def _check_order(submission: Submission) -> None:
    if submission.least_csx > submission.num_csx:
        raise ConfigError(
            "the least number of systems must not be above the number asked for",
            code="min-above-num-csx",
            where="min_num_csx",
            value=submission.least_csx,
            rule=f"at most num_csx, {submission.num_csx}",
            remedy="raise num_csx, or lower min_num_csx",
        )


def check_session(sessions: Sequence[Session], name: str, caller: Caller) -> None:
    """Refuse a session that does not exist, or is not the caller's.

    Raises:
        ConfigError: There is none of the name.
        RequestRefused: It is set aside for others.
    """
    if name == DEFAULT_SESSION:
        return
    session = next((each for each in sessions if each.name == name), None)
    if session is None:
        raise ConfigError(
            "the session must exist",
            code="unknown-session",
            value=name,
            remedy=did_you_mean(name, [each.name for each in sessions])
            or "waferstream ctl get sessions lists them",
        )
    is_own = not {caller.user, *caller.groups}.isdisjoint(session.users)
    if not is_own and caller.role != "administrator":
        raise RequestRefused(
            "the session must be one's own",
            code="session-forbidden",
            value=name,
            remedy="ask an administrator",
        )


def _fact(action: Action, workflow: Workflow) -> event.Fact | None:
    """Return what happens to a workflow by a decision; None where it stays as it is."""
    waits, runs = workflow.stage is Stage.WAITING, workflow.stage is Stage.RUNNING
    match action:
        case Start() if waits and action.job.endswith(COMPILE):
            return event.CompileStarted()
        case Start() if waits:
            return event.Placed(placement=Placement(systems=action.systems, group=action.group))
        case Resize() if runs and workflow.placement is not None:
            after = workflow.placement.model_copy(update={"systems": action.systems})
            return event.Asked(aim="resize", next_placement=after)
        case Pause() if runs:
            return event.Asked(aim="pause")
        case Wait() if waits and action.job == workflow.name:
            is_other = _gist(action.reason) != _gist(workflow.reason)
            return event.Waits(reason=action.reason) if is_other else None
    return None


def _gist(reason: str) -> str:
    """Return what stays of a reason while other jobs come and go: neither numbers nor names."""
    return _DETAILS.sub("", reason)
