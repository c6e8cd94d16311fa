"""What the coordinator keeps of the measured activities of a run, for a trace."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from waferstream.core.messages.messages import COORDINATOR
from waferstream.core.roles.activities import ActivityLog, Interval, earliest
from waferstream.core.roles.role import Report


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
