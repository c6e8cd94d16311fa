"""A cluster that outlives its processes: it is started again and replays the lost steps.

The weights of a step depend on nothing but the state before it and the batch that its number names.
So a new cluster that starts from a checkpoint and repeats the commands since ends with the same
bits, and on the same picosecond of the emulated clock. The user's program notices nothing: its
closures run once, with results of either cluster.
"""

from __future__ import annotations

import logging
from typing import Any

from appliance.coordinator.cluster import Cluster
from appliance.coordinator.commands import (
    AllowFailures,
    CountFailures,
    LoadWeights,
    ReadStanding,
    ReadStory,
    Run,
    SaveCheckpoint,
    Settle,
)
from appliance.coordinator.step_results import StepResult
from appliance.recovery.history import HeldFile, History
from appliance.recovery.restarts import Restarts, Starter
from waferstream.checkpoint import CLUSTER_STATES
from waferstream.core.errors import (
    ApplianceNanError,
    CheckpointError,
    WaferStreamError,
)
from waferstream.core.roles.role import Command, Result

log = logging.getLogger("waferstream")


class ReplayingCluster:
    """A cluster that starts again when its processes are lost.

    Recovery begins with the first step. Failures that another cluster would repeat, as those of the
    user's code, are raised at once.

    Args:
        starter: Starts the clusters.
        max_restarts: The failures that may be answered; see ``Restarts``.
    """

    def __init__(self, starter: Starter, max_restarts: int) -> None:
        self._history = History()
        self._restarts = Restarts(starter, max_restarts, self._history)

    def do(self, command: Command[Any]) -> Any:  # noqa: PLR0911 (a case for each)
        """Do what a command says, on as many clusters as it takes."""
        match command:
            case Run():
                return self._run(command)
            case SaveCheckpoint():
                return self._save(command)
            case LoadWeights() if not self._history.has_begun:  # nothing is repeated from before it
                self._restarts.running().do(command)
            case LoadWeights(values, state):
                copies = {name: value.detach().clone() for name, value in values.items()}
                self._repeatable(LoadWeights(copies, state))
            case Settle():
                return self._restarts.running().do(command)
            case ReadStory():
                return self._restarts.running().do(command)
            case CountFailures():
                return self._restarts.num_failures()
            case AllowFailures(count):
                self._restarts.allow(count)
            case _:
                return self._repeatable(command)
        return None

    def _repeatable(self, command: Command[Result]) -> Result:
        """Return the result of a command that another cluster gets, too, if it changes this one."""
        result = self._restarts.do(command)
        if command.changes:
            self._history.note(command)
        return result

    def _run(self, command: Run) -> list[StepResult]:
        """Run steps; the first ones make the base of all recoveries."""
        if not self._history.has_begun:
            self._save_privately(command.first_step - 1)
        try:
            results = self._restarts.do(command)
        except WaferStreamError as error:  # not an interrupt: the coordinator may not answer
            if isinstance(error, ApplianceNanError):
                self._history.note(command)  # the steps were done
            self._restarts.tell()
            raise
        self._restarts.tell()
        self._history.note(command)
        if command.kind.updates:
            self._history.last_step = command.last_step
        return results

    def _save(self, command: SaveCheckpoint) -> None:
        """Write a checkpoint file, from which further recoveries start if it is complete."""
        path = command.path
        begun = path.read_bytes() if path.exists() else b""  # what the user's process wrote

        def save(cluster: Cluster) -> None:
            if path.exists() and path.stat().st_size != len(begun):  # by a cluster that was lost
                path.write_bytes(begun)
            cluster.do(command)

        self._restarts.done(save, str(command))
        if self._history.has_begun and self._history.is_whole(command.states):
            standing = self._restarts.do(ReadStanding())
            self._history.begin_at(HeldFile(path), self._history.last_step, standing)
            self._restarts.note_checkpoint()

    def newest_step(self) -> int:
        """Return the newest step of a running job that has begun, 0 if unknown, in any thread."""
        return self._restarts.newest_step()

    def shutdown(self) -> None:
        """End the cluster and let all files go. Idempotent."""
        self._restarts.shutdown()
        self._history.close()

    def _save_privately(self, step: int) -> None:
        """Make the base of the first step; without it, recovery begins with a checkpoint."""
        cluster = self._restarts.running()
        try:
            states = tuple(CLUSTER_STATES)
            file = HeldFile.written_by(lambda path: cluster.do(SaveCheckpoint(path, states, {})))
        except CheckpointError as error:
            log.warning("A lost cluster cannot be restarted before the first checkpoint: %s", error)
            return
        self._history.begin_at(file, step, self._restarts.do(ReadStanding()))
