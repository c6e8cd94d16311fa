"""The times of a run: emulated ones, and those that roles and coordinator have measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from appliance.elaboration.elaborate import costed_program
from memoryx.sparsity.step_sparsity import sparsity_by_optimizer
from waferstream.core.optimizer import OptimizerSpec
from waferstream.core.program.program import Program, ProgramKind
from waferstream.core.roles.activities import ActivityLog, Interval, earliest
from waferstream.core.roles.installation import Installation
from waferstream.core.roles.names import COORDINATOR
from waferstream.core.roles.role import Report
from waferstream.machine.attribution import StepTiming
from waferstream.machine.densities import StepSparsity
from waferstream.machine.record import Record
from waferstream.simulator.cluster_timing import ClusterTiming


class EmulatedClock:
    """Emulated time of one cluster; a copy goes on from the same moment."""

    def __init__(self, timing: ClusterTiming) -> None:
        self._timing = timing
        self._last_update: int | None = None  # None before the first training step

    @property
    def record(self) -> Record | None:
        """All activities in emulated time, where they are recorded."""
        return self._timing.record

    def load(self, installation: Installation) -> None:
        """Load the program of an installation."""
        self._timing.load_program(costed_program(installation, self._timing.machine))

    def step(
        self, kind: ProgramKind, step: int, training: Installation | None, skipped: int
    ) -> StepTiming:
        """Advance by one step; return how long it takes and where the time goes.

        Args:
            kind: The program of the step.
            step: The number of the step.
            training: The installation that trains; it says which weights are sparse.
            skipped: Training steps before this one whose update was skipped.
        """
        if training is not None and training.optimizer is not None and training.optimizer.sparsity:
            found = self._sparsity(kind, step - skipped, training.program, training.optimizer)
            self._timing.set_sparsity(kind, found)
        return self._timing.step(kind, step)

    def _sparsity(
        self, kind: ProgramKind, applied_step: int, program: Program, optimizer: OptimizerSpec
    ) -> StepSparsity:
        """Return the densities that a step finds, and the changes of masks at its end.

        Evaluation changes no mask, and finds what the last training step has left.
        """
        if kind.updates:
            self._last_update = applied_step + optimizer.earlier_updates
            return sparsity_by_optimizer(optimizer, program.parameter, self._last_update)
        last = max(0, optimizer.earlier_updates) if self._last_update is None else self._last_update
        return StepSparsity(sparsity_by_optimizer(optimizer, program.parameter, last + 1).densities)


@dataclass
class MeasuredRecord:
    """The activities of all roles over all jobs of a cluster.

    Args:
        limit: The most activities that are kept, those of all roles together; 0 keeps none.
    """

    limit: int
    log: ActivityLog = field(init=False)
    """The coordinator's own activities."""
    num_lost: int = 0
    """The activities that are missing."""
    by_role: dict[str, list[Interval]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.log = ActivityLog(self.limit)

    @property
    def num_left(self) -> int:
        """How many more activities fit."""
        num_kept = len(self.log.intervals) + sum(map(len, self.by_role.values()))
        return max(0, self.limit - num_kept)

    def take(self, reports: Sequence[Report]) -> None:
        """Keep the activities of a job, the first ones if not all of them fit."""
        if not self.log.is_on:
            return
        found = ((each.role, interval) for each in reports for interval in each.intervals)
        kept, num_more = earliest(found, self.num_left)
        for role, intervals in kept.items():
            self.by_role.setdefault(role, []).extend(intervals)
        self.num_lost += num_more + sum(report.num_lost for report in reports)

    def add(self, activities: Mapping[str, Interval]) -> None:
        """Keep one activity of some roles, between jobs."""
        self.take([Report(role, intervals=[interval]) for role, interval in activities.items()])

    def all(self) -> dict[str, list[Interval]]:
        """Return the activities by role, those of the coordinator first."""
        own = [*self.log.intervals, *self.by_role.get(COORDINATOR, ())]
        return {COORDINATOR: own} | {r: of for r, of in self.by_role.items() if r != COORDINATOR}

    def copy(self) -> MeasuredRecord:
        """Return a copy that later activities do not change."""
        copied = MeasuredRecord(self.limit, self.num_lost)
        copied.log.intervals = list(self.log.intervals)
        copied.by_role = {role: list(of) for role, of in self.by_role.items()}
        return copied
