"""Start a cluster again when its processes are lost, and bring it to the state of the lost one."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol, TypeVar

from appliance.coordinator.cluster import Cluster, cluster_ended
from appliance.coordinator.commands import AllowFailures, CountFailures, ReadStory
from appliance.recovery.history import History
from appliance.recovery.policy import restarts_exhausted
from appliance.recovery.states import Parts
from waferstream.core.errors import (
    ApplianceDeadlockError,
    ApplianceError,
    ApplianceRuntimeServerError,
    ClusterJobInitError,
    WaferStreamError,
)
from waferstream.core.events import ClusterReplaced
from waferstream.core.roles.names import COORDINATOR
from waferstream.core.roles.role import Command, Result

log = logging.getLogger("waferstream")

T = TypeVar("T")

_FAILED = "role-failed"
_DEFECTS = {_FAILED, "cluster-ended", "restarts-exhausted"}
"""Codes of failures that another cluster would repeat, or must not try again; a coordinator that
failed is worth another try, as it runs no code of the user."""


class Starter(Protocol):
    """Starts clusters of one specification, one after the other."""

    def start(self) -> Cluster:
        """Start a cluster; ClusterJobInitError if it does not start."""

    def has_better_hosts(self) -> bool:
        """Return whether a cluster that starts now would have more systems or hosts."""

    def close(self) -> None:
        """Release what the clusters shared. Idempotent."""


class Restarts:
    """The running cluster, and the next one whenever it is lost.

    Args:
        starter: Starts the clusters.
        max_restarts: The failures that may be answered, those inside a cluster included: the
            failures in a row of every cluster that was lost since the newest checkpoint, and those
            since the last finished step.
        history: The commands and the checkpoint from which a replacement cluster is rebuilt.
    """

    def __init__(self, starter: Starter, max_restarts: int, history: History) -> None:
        self._starter = starter
        self._max_restarts = max_restarts
        self._num_restarts = 0
        self._cluster: Cluster | None = starter.start()
        self._history = history

    def running(self) -> Cluster:
        """Return the cluster; ApplianceRuntimeServerError after its end."""
        if self._cluster is None:
            raise cluster_ended()
        return self._cluster

    def newest_step(self) -> int:
        """Return the newest step of a running job that has begun, 0 if unknown, in any thread."""
        return 0 if self._cluster is None else self._cluster.newest_step()

    def do(self, command: Command[Result]) -> Result:
        """Return the result of a command; repeat it as often as the cluster is lost."""
        return self.done(lambda cluster: cluster.do(command), str(command))

    def done(self, call: Callable[[Cluster], T], what: str) -> T:
        """Return the result of a call; recover and call again as often as the cluster is lost."""
        while True:
            try:
                return call(self.running())
            except ApplianceError as error:
                self._recover(error, what)

    def tell(self) -> None:
        """Log what recovery inside the cluster has done."""
        with suppress(ApplianceError):  # the coordinator is lost, and with it the story
            for event in self.running().do(ReadStory()):
                log.warning(event)

    def num_failures(self) -> int:
        """Return the failures that count: ``max_restarts`` of them may be answered."""
        return self._num_restarts + self.running().do(CountFailures())

    def allow(self, count: int) -> None:
        """Answer at most ``count`` failures, from now on."""
        self._max_restarts = count
        self.do(AllowFailures(count - self._num_restarts))

    def note_checkpoint(self) -> None:
        """Count failures anew, as the history begins with a checkpoint of this moment.

        If hosts have joined, the cluster goes on with them.
        """
        if self._num_restarts:
            self._num_restarts = 0
            self.do(AllowFailures(self._max_restarts))
        if self._starter.has_better_hosts():
            self._move_on()

    def shutdown(self) -> None:
        """End the cluster and what clusters shared. Idempotent."""
        if self._cluster is not None:
            self._cluster.shutdown()
            self._cluster = None
        self._starter.close()

    def _move_on(self) -> None:
        """Go on from this moment with the hosts that there are now."""
        parts = Parts()
        step = self._history.first_step
        log.info("Hosts have joined: the cluster starts again on them after step %d", step)
        try:
            self._restart(parts)
        except ApplianceError as error:
            self._recover(error, "the start on other hosts")
        else:
            log.info("Moved to other hosts in %s", parts.duration)

    def _recover(self, error: ApplianceError, what: str) -> None:
        """Start another cluster and bring it to the state of the lost one.

        Raises:
            ApplianceError: ``error`` itself, if another cluster would repeat it, or if there were
                too many restarts.
        """
        parts = Parts()
        while True:
            if not self._history.has_begun or not _is_loss(error):
                raise error
            self._num_restarts += self._failures_of_lost()
            if self._num_restarts > self._max_restarts:
                raise restarts_exhausted(error, self._max_restarts) from error
            self.tell()
            log.warning(
                "%s Restart %d of at most %d", _headline(error), self._num_restarts,
                self._max_restarts,
            )  # fmt: skip
            try:
                self._restart(parts)
            except ApplianceError as another:
                error = another
                continue
            done = self._history.num_commands, self._history.first_step
            log.info(ClusterReplaced(parts.duration, *done, what))
            return

    def _failures_of_lost(self) -> int:
        """Return the failures in a row with which a cluster was lost; those of a lost coordinator
        are lost with it, but for the last one."""
        try:
            return max(1, self.running().do(CountFailures()))
        except ApplianceError:
            return 1

    def _restart(self, parts: Parts) -> None:
        """Start a cluster, load the base into it and repeat all commands since."""
        parts.begin("ending")
        self.running().shutdown()
        parts.begin("starting")
        cluster = self._cluster = self._starter.start()
        cluster.do(AllowFailures(self._max_restarts - self._num_restarts))
        parts.begin("restoring")
        self._history.restore(cluster)
        parts.begin("repeating")
        self._history.repeat(cluster)
        parts.end()


def _is_loss(error: WaferStreamError) -> bool:
    """Return whether processes were lost, so that another cluster can repeat what they did."""
    lost = (ApplianceRuntimeServerError, ApplianceDeadlockError, ClusterJobInitError)
    if error.code == _FAILED and str(error.where).startswith(COORDINATOR):
        return True
    return isinstance(error, lost) and error.code not in _DEFECTS


def _headline(error: WaferStreamError) -> str:
    return f"{error.what} ({error.where})." if error.where else f"{error.what}."
