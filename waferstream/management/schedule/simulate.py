"""Run jobs through ``decide`` on an emulated clock."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import NamedTuple

from waferstream.management.schedule.actions import Action, Expected, Pause, Resize, Start, Wait
from waferstream.management.schedule.decide import decide
from waferstream.management.schedule.explain import ForecastErrors
from waferstream.management.schedule.line import used
from waferstream.management.schedule.state import Inventory, Job, Rules, Usage

_LONGEST_NAP_S = 900.0
"""While jobs wait, time alone may change a decision: it is asked again after so long."""

_NOTHING = 1e-9
"""Of a run of which no more than this is left, divisions have left it."""

_DEFAULT_RULES = Rules()


class Piece(NamedTuple):
    """A part of a run on the same systems."""

    starts_s: float
    ends_s: float
    systems: tuple[str, ...]


@dataclass(slots=True)
class Run:
    """A job on the emulated clock."""

    job: Job
    slower: float = 1.0
    """Factor by which the job takes longer than predicted."""
    kind: str = ""
    pieces: list[Piece] = field(default_factory=list)
    waited_s: float = 0.0
    """Without systems, from the submission to the end."""
    started_s: float = inf
    ended_s: float = inf
    expected: Expected | None = None
    """The start that was foretold at the submission; None where the job started at once."""
    resizes: int = 0
    pauses: int = 0
    _piece_since_s: float = 0.0

    def ends_s(self, now_s: float) -> float:
        """Return when the job ends if it goes on as it is."""
        return max(now_s, self.job.ready_s) + self.job.left * self._whole_s()

    def advance(self, since_s: float, now_s: float) -> None:
        """Let the job make progress between two times."""
        progress_s = now_s - max(since_s, self.job.ready_s)
        if progress_s > 0.0:
            left = self.job.left - progress_s / self._whole_s()
            self.job = replace(self.job, left=left if left > _NOTHING else 0.0)

    def start(self, now_s: float, kind: str, action: Start) -> None:
        """Give the job its systems; to resume costs time."""
        self.waited_s += now_s - self.job.waits_since_s
        self.kind, self._piece_since_s = kind, now_s
        self.started_s = min(self.started_s, now_s)
        ready_s = now_s + (self.job.resize_s if self.pauses else 0.0)
        self.job = replace(
            self.job, holds=action.systems, group=action.group, starts_s=now_s, ready_s=ready_s
        )

    def resize(self, now_s: float, kind: str, action: Resize) -> None:
        """Give the job other systems, which costs time."""
        self._end_piece(now_s)
        self.resizes += 1
        self.kind = kind
        self.job = replace(self.job, holds=action.systems, ready_s=now_s + self.job.resize_s)

    def pause(self, now_s: float) -> None:
        """Take the job's systems."""
        self._end_piece(now_s)
        self.pauses += 1
        self.job = replace(self.job, holds=(), group=None, waits_since_s=now_s)

    def end(self, now_s: float) -> None:
        """Note that the job has ended."""
        self._end_piece(now_s)
        self.ended_s = now_s

    def _end_piece(self, now_s: float) -> None:
        self.pieces.append(Piece(self._piece_since_s, now_s, self.job.holds))
        self._piece_since_s = now_s

    def _whole_s(self) -> float:
        size = len(self.job.holds) or self.job.num_csx
        return self.slower * self.job.run_times[self.kind].seconds(size)


def simulate(
    inventory: Inventory,
    jobs: Iterable[Job],
    rules: Rules = _DEFAULT_RULES,
    *,
    slower: Mapping[str, float] | None = None,
    decide: Callable[..., list[Action]] = decide,
) -> list[Run]:
    """Return the runs of jobs, in their order, after all of them have ended.

    Args:
        inventory: What there is.
        jobs: All jobs; one arrives when it is submitted.
        rules: What an administrator has set.
        slower: Factor by which a job takes longer than predicted, by name; 1 without.
        decide: What decides.

    Raises:
        ValueError: A job can never start.
    """
    factors = slower or {}
    runs = [Run(job, factors.get(job.name, 1.0)) for job in jobs]
    _Clock(inventory, rules, runs, decide).run()
    return runs


class _Clock:
    """The emulated clock, which goes from one event to the next."""

    def __init__(
        self,
        inventory: Inventory,
        rules: Rules,
        runs: Sequence[Run],
        decide: Callable[..., list[Action]],
    ) -> None:
        self._inventory = inventory
        self._rules = rules
        self._decide = decide
        self._coming = deque(sorted(runs, key=lambda run: run.job.submitted_s))
        self._here: dict[str, Run] = {}
        self._running: dict[str, Run] = {}
        self._kinds = {
            system.name: system.kind for each in inventory.sessions for system in each.systems
        }
        self._usage = Usage()
        self._errors = ForecastErrors()
        self._now_s = 0.0

    def run(self) -> None:
        """Go on until all jobs have ended."""
        while self._coming or self._here:
            self._go_to(self._next_s())
            self._end_jobs()
            arrived = self._arrive()
            if len(self._here) > len(self._running) or self._running:
                self._carry_out(arrived)

    def _next_s(self) -> float:
        """Return when something happens next."""
        times = [run.ends_s(self._now_s) for run in self._running.values()]
        if self._coming:
            times.append(self._coming[0].job.submitted_s)
        if not times:
            raise ValueError(f"jobs that can never start: {', '.join(sorted(self._here))}")
        if len(self._here) > len(self._running):
            times.append(self._now_s + _LONGEST_NAP_S)
        return min(times)

    def _go_to(self, now_s: float) -> None:
        """Let time pass."""
        for run in self._running.values():
            run.advance(self._now_s, now_s)
        jobs = [run.job for run in self._running.values()]
        self._usage = used(self._usage, now_s, jobs, self._rules)
        self._now_s = now_s

    def _end_jobs(self) -> None:
        for name in [name for name, run in self._running.items() if run.job.left == 0.0]:
            self._running.pop(name).end(self._now_s)
            del self._here[name]

    def _arrive(self) -> set[str]:
        """Let the jobs in that are submitted now; return their names."""
        arrived = set[str]()
        while self._coming and self._coming[0].job.submitted_s <= self._now_s:
            run = self._coming.popleft()
            run.job = replace(run.job, waits_since_s=run.job.submitted_s)
            self._here[run.job.name] = run
            arrived.add(run.job.name)
        return arrived

    def _carry_out(self, arrived: set[str]) -> None:
        """Do what is decided now; note when those that have just come are expected to start."""
        jobs = [run.job for run in self._here.values()]
        forecast = self._errors.forecast() if arrived else None
        actions = self._decide(
            self._now_s, self._inventory, jobs, self._usage, self._rules, forecast
        )
        for action in actions:
            run = self._here[action.job]
            match action:
                case Start():
                    self._running[action.job] = run
                    self._note_start(run)
                    run.start(self._now_s, self._kind_of(action.systems, run), action)
                case Resize():
                    run.resize(self._now_s, self._kind_of(action.systems, run), action)
                case Pause():
                    del self._running[action.job]
                    run.pause(self._now_s)
                case Wait(expected=expected) if action.job in arrived:
                    run.expected = expected

    def _kind_of(self, systems: Sequence[str], run: Run) -> str:
        return self._kinds[systems[0]] if systems else next(iter(run.job.run_times))

    def _note_start(self, run: Run) -> None:
        """Learn from the first start of a job how far its forecast was off."""
        if run.expected is not None and run.started_s == inf:
            self._errors.learn(run.job.submitted_s, run.expected.start_s, self._now_s)
