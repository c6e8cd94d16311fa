"""The trace of a run: what the user's process has recorded, together with what its cluster has."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from appliance.checkpoints.background_save import BackgroundSave
from appliance.coordinator.cluster import Cluster
from appliance.coordinator.commands import ReadActivities
from waferstream.core.errors import WaferStreamError
from waferstream.core.roles.activities import ActivityLog, Interval, earliest
from waferstream.machine.trace import Activities, write_trace

PROGRAM = "program"
"""The track of the user's process."""


class RunTrace:
    """The activities of a run.

    Args:
        limit: The most activities of each clock that are kept; 0 keeps none.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.log = ActivityLog(limit)
        """Activities of the user's process."""
        self._saves: list[BackgroundSave] = []
        self._of_ended: Activities | None = None

    def note_save(self, save: BackgroundSave) -> None:
        """Note a checkpoint that the weight servers have begun to write."""
        if self.log.is_on:
            self._saves.append(save)

    def keep(self, cluster: Cluster, error: BaseException) -> None:
        """Keep the activities of a cluster that is about to end, as far as it still has them.

        Args:
            cluster: The cluster.
            error: Why it ends. After an interrupt it still works, and answers only when its job is
                done, which nobody waits for.
        """
        if self.log.is_on and isinstance(error, Exception):
            with suppress(WaferStreamError):
                self._of_ended = cluster.do(ReadActivities())

    def write(self, path: Path, running: Callable[[], Cluster]) -> list[str]:
        """Write all activities so far; return what is missing, as sentences.

        Args:
            path: The file.
            running: Returns the running cluster.

        Raises:
            WaferStreamError: Nothing was recorded, or no cluster has run.
        """
        if not self.log.is_on:
            raise WaferStreamError(
                "nothing was recorded for a trace",
                code="trace-not-recorded",
                remedy="set ClusterConfig(record=True)",
            )
        found = self._of_ended or running().do(ReadActivities())
        activities = self._with_limit(replace(found, measured=self._measured(found)))
        write_trace(path, activities)
        return activities.missing()

    def _measured(self, found: Activities) -> dict[str, list[Interval]]:
        """Return the activities of this process and of all roles, and the checkpoints."""
        measured = {PROGRAM: self.log.intervals}
        measured |= {role: [*intervals] for role, intervals in found.measured.items()}
        for save in self._saves:
            for server, interval in save.written.items():
                measured.setdefault(server, []).append(interval)
        return measured

    def _with_limit(self, activities: Activities) -> Activities:
        """Return the first activities, as many as the limit allows."""
        found = ((role, each) for role, of in activities.measured.items() for each in of)
        kept, num_more = earliest(found, self._limit)
        num_lost = activities.num_lost + self.log.num_lost + num_more
        return replace(activities, measured=kept, num_lost=num_lost)
