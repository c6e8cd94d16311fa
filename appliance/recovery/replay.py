"""A cluster that outlives its processes: it is started again and replays the lost steps.

The weights of a step depend on nothing but the state before it and the batch that its number names.
So a new cluster that starts from a checkpoint and repeats the calls made since ends with the same
bits, and on the same picosecond of the emulated clock. The user's program notices nothing: its
closures run once, with results of either cluster.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np
import torch

from appliance.coordinator import Standing, cluster_ended
from appliance.recovery.held_file import HeldFile
from appliance.recovery.history import Call, History
from appliance.recovery.parts import Parts
from appliance.recovery.policy import restarts_exhausted
from appliance.step_results import StepResult
from timing.trace import Activities
from wsc.checkpoint import CLUSTER_STATES
from wsc.core.errors import (
    ApplianceDeadlockError,
    ApplianceError,
    ApplianceNanError,
    ApplianceRuntimeServerError,
    CheckpointError,
    ClusterJobInitError,
    WaferStreamError,
)
from wsc.core.installation import Installation
from wsc.core.loss_scale import LossScale
from wsc.core.messages import COORDINATOR
from wsc.core.optimizer import OptimizerSpec
from wsc.core.program import Mode
from wsc.core.watch import NOTHING, Watch

if TYPE_CHECKING:
    from appliance.cluster import Cluster

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


class ReplayingCluster:
    """A cluster that starts again when its processes are lost.

    Recovery begins with the first step. Failures that another cluster would repeat, as those of the
    user's code, are raised at once.

    Args:
        starter: Starts the clusters.
        max_restarts: The failures that may be answered, those inside a cluster included: the
            failures in a row of every cluster that was lost since the newest checkpoint, and those
            since the last finished step.
    """

    def __init__(self, starter: Starter, max_restarts: int) -> None:
        self._starter = starter
        self._max_restarts = max_restarts
        self._num_restarts = 0
        self._cluster: Cluster | None = starter.start()
        self._history = History()

    def install(self, installation: Installation) -> None:
        """Give every role its part of a program."""
        self._change(lambda cluster: cluster.install(installation))
        self._history.note_program(installation)

    def train_with(self, optimizer: OptimizerSpec) -> None:
        """Let further training steps end with another update of the same parameters."""
        self._change(lambda cluster: cluster.train_with(optimizer))
        self._history.note_optimizer(optimizer)

    def run(
        self,
        mode: Mode,
        first_step: int,
        last_step: int,
        check_finite: bool = True,
        loss_scale: LossScale | None = None,
        watch: Watch = NOTHING,
    ) -> list[StepResult]:
        """Run steps ``first_step`` to ``last_step`` (from 1, inclusive)."""
        if not self._history.has_begun:
            self._save_privately(first_step - 1)

        def run(cluster: Cluster) -> list[StepResult]:
            return cluster.run(mode, first_step, last_step, check_finite, loss_scale, watch)

        def repeat(cluster: Cluster) -> None:
            with suppress(ApplianceNanError):
                run(cluster)

        try:
            results = self._done(run, f"{mode} step {first_step}")
        except WaferStreamError as error:  # not an interrupt: the coordinator may not answer
            if isinstance(error, ApplianceNanError):
                self._history.note(repeat)  # the steps were done
            self._tell()
            raise
        self._tell()
        self._history.note(repeat)
        if mode == "train":
            self._history.last_step = last_step
        return results

    def load_weights(self, values: Mapping[str, torch.Tensor], state: str = "model") -> None:
        """Send weights, or optimizer state, to the weight servers that own them."""
        if not self._history.has_begun:  # nothing is repeated from before it
            self._running().load_weights(values, state)
            return
        kept = {name: value.detach().clone() for name, value in values.items()}
        self._change(lambda cluster: cluster.load_weights(kept, state))

    def save(self, path: Path, states: Collection[str], objects: Mapping[str, Any]) -> None:
        """Write a checkpoint file, from which further recoveries start if it is complete."""
        begun = path.read_bytes() if path.exists() else b""  # what the user's process wrote

        def save(cluster: Cluster) -> None:
            if path.exists() and path.stat().st_size != len(begun):  # by a cluster that was lost
                path.write_bytes(begun)
            cluster.save(path, states, objects)

        self._done(save, f"the checkpoint {path.name}")
        if self._history.has_begun and self._history.is_whole(states):
            self._history.begin_at(HeldFile(path), self._history.last_step, self.standing())
            if self._num_restarts:
                self._num_restarts = 0
                self._done(lambda cluster: cluster.allow_failures(self._max_restarts), "training")
            if self._starter.has_better_hosts():
                self._move_on()

    def begin_save(
        self, path: Path, states: Collection[str], is_background: bool = True
    ) -> Sequence[str]:
        """Begin to write a file; recoveries do not start from it, and abandon it."""
        return self._done(
            lambda cluster: cluster.begin_save(path, states, is_background), "a checkpoint"
        )

    def finish_saving(self) -> None:
        """Wait until every server has reported about the last save that was begun."""
        self._done(lambda cluster: cluster.finish_saving(), "a checkpoint")

    def restore(self, path: Path, states: Collection[str], strict: bool) -> None:
        """Read states that are tensors from a checkpoint file."""
        self._done(lambda cluster: cluster.restore(path, states, strict), "a checkpoint")
        self._history.note_restoring(HeldFile(path), states, strict)

    def newest_step(self) -> int:
        """Return the newest step of a running job that has begun, 0 if unknown, in any thread."""
        return 0 if self._cluster is None else self._cluster.newest_step()

    def masters(self, names: Sequence[str], state: str = "model") -> dict[str, np.ndarray]:
        """Return copies of fp32 masters, or of optimizer state, by name."""
        return self._done(lambda cluster: cluster.masters(names, state), "reading weights")

    def standing(self) -> Standing:
        """Return a copy of what a coordinator of the same cluster needs to go on from here."""
        return self._done(lambda cluster: cluster.standing(), "reading the coordinator's state")

    def take_over(self, standing: Standing) -> None:
        """Go on from where a coordinator of the same cluster stood."""
        self._change(lambda cluster: cluster.take_over(standing))

    def digest(self) -> str:
        """Return the SHA-256 of all weights."""
        return self._done(lambda cluster: cluster.digest(), "reading weights")

    def peak_bytes(self) -> dict[str, dict[str, int]]:
        """Return the peak SRAM bytes by kind of each CS node in the last job."""
        return self._done(lambda cluster: cluster.peak_bytes(), "reading reports")

    def activities(self) -> Activities:
        """Return the recorded activities, in emulated and in measured time."""
        return self._done(lambda cluster: cluster.activities(), "reading reports")

    def story(self) -> list[str]:
        """Return what recovery inside the cluster has done since the last call."""
        return self._running().story()

    def num_failures(self) -> int:
        """Return the failures that count: ``max_restarts`` of them may be answered."""
        return self._num_restarts + self._running().num_failures()

    def allow_failures(self, count: int) -> None:
        """Let recovery answer at most ``count`` failures, from now on."""
        self._max_restarts = count
        self._done(lambda cluster: cluster.allow_failures(count - self._num_restarts), "training")

    def shutdown(self) -> None:
        """End the cluster and let all files go. Idempotent."""
        if self._cluster is not None:
            self._cluster.shutdown()
            self._cluster = None
        self._starter.close()
        self._history.close()

    def _running(self) -> Cluster:
        if self._cluster is None:
            raise cluster_ended()
        return self._cluster

    def _change(self, call: Call) -> None:
        """Make a call that changes the cluster, and remember it."""
        self._done(call, "a change")
        self._history.note(call)

    def _done(self, call: Callable[[Cluster], T], what: str) -> T:
        """Return the result of a call; recover and call again as often as the cluster is lost."""
        while True:
            try:
                return call(self._running())
            except ApplianceError as error:
                self._recover(error, what)

    def _tell(self) -> None:
        """Log what recovery inside the cluster has done."""
        with suppress(ApplianceError):  # the coordinator is lost, and with it the story
            for line in self.story():
                log.warning("Recovery: %s", line)

    def _recover(self, error: ApplianceError, what: str) -> None:
        """Start another cluster and bring it to where the lost one stood.

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
            self._tell()
            log.warning(
                "%s Restart %d of at most %d", _headline(error), self._num_restarts,
                self._max_restarts,
            )  # fmt: skip
            try:
                self._restart(parts)
            except ApplianceError as another:
                error = another
                continue
            log.info(
                "Recovered in %s: %d calls since step %d were repeated; going on with %s",
                parts, self._history.num_calls, self._history.first_step, what,
            )  # fmt: skip
            return

    def _failures_of_lost(self) -> int:
        """Return the failures in a row with which a cluster was lost; those of a lost coordinator
        are lost with it, but for the last one."""
        try:
            return max(1, self._running().num_failures())
        except ApplianceError:
            return 1

    def _restart(self, parts: Parts) -> None:
        """Start a cluster, load the base into it and repeat all calls since."""
        parts.begin("ending")
        self._running().shutdown()
        parts.begin("starting")
        cluster = self._cluster = self._starter.start()
        cluster.allow_failures(self._max_restarts - self._num_restarts)
        parts.begin("restoring")
        self._history.restore(cluster)
        parts.begin("repeating")
        self._history.repeat(cluster)
        parts.end()

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
            log.info("Moved to other hosts in %s", parts)

    def _save_privately(self, step: int) -> None:
        """Make the base of the first step; without it, recovery begins with a checkpoint."""
        cluster = self._running()
        try:
            file = HeldFile.written_by(lambda path: cluster.save(path, tuple(CLUSTER_STATES), {}))
        except CheckpointError as error:
            log.warning("A lost cluster cannot be restarted before the first checkpoint: %s", error)
            return
        self._history.begin_at(file, step, self.standing())


def _is_loss(error: WaferStreamError) -> bool:
    """Return whether processes were lost, so that another cluster can repeat what they did."""
    lost = (ApplianceRuntimeServerError, ApplianceDeadlockError, ClusterJobInitError)
    if error.code == _FAILED and str(error.where).startswith(COORDINATOR):
        return True
    return isinstance(error, lost) and error.code not in _DEFECTS


def _headline(error: WaferStreamError) -> str:
    return f"{error.what} ({error.where})." if error.where else f"{error.what}."
