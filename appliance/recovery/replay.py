"""A cluster that outlives its processes: it is started again and replays the lost steps.

The weights of a step depend on nothing but the state before it and the batch that its number names.
So a new cluster that starts from a checkpoint and repeats the calls made since ends with the same
bits, and on the same picosecond of the emulated clock. The user's program notices nothing: its
closures run once, with results of either cluster.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch

from appliance.coordinator.cluster import Cluster, Standing
from appliance.coordinator.step_results import StepResult
from appliance.recovery.held_file import HeldFile
from appliance.recovery.history import Call, History
from appliance.recovery.restarts import Restarts, Starter
from timing.trace import Activities
from wsc.checkpoint import CLUSTER_STATES
from wsc.core.errors import (
    ApplianceNanError,
    CheckpointError,
    WaferStreamError,
)
from wsc.core.messages.watch import NOTHING, Watch
from wsc.core.optimizer.loss_scale import LossScale
from wsc.core.optimizer.spec import OptimizerSpec
from wsc.core.program.program import Mode
from wsc.core.roles.installation import Installation

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
            results = self._restarts.done(run, f"{mode} step {first_step}")
        except WaferStreamError as error:  # not an interrupt: the coordinator may not answer
            if isinstance(error, ApplianceNanError):
                self._history.note(repeat)  # the steps were done
            self._restarts.tell()
            raise
        self._restarts.tell()
        self._history.note(repeat)
        if mode == "train":
            self._history.last_step = last_step
        return results

    def load_weights(self, values: Mapping[str, torch.Tensor], state: str = "model") -> None:
        """Send weights, or optimizer state, to the weight servers that own them."""
        if not self._history.has_begun:  # nothing is repeated from before it
            self._restarts.running().load_weights(values, state)
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

        self._restarts.done(save, f"the checkpoint {path.name}")
        if self._history.has_begun and self._history.is_whole(states):
            self._history.begin_at(HeldFile(path), self._history.last_step, self.standing())
            self._restarts.note_checkpoint()

    def begin_save(
        self, path: Path, states: Collection[str], is_background: bool = True
    ) -> Sequence[str]:
        """Begin to write a file; recoveries do not start from it, and abandon it."""
        return self._restarts.done(
            lambda cluster: cluster.begin_save(path, states, is_background), "a checkpoint"
        )

    def finish_saving(self) -> None:
        """Wait until every server has reported about the last save that was begun."""
        self._restarts.done(lambda cluster: cluster.finish_saving(), "a checkpoint")

    def restore(self, path: Path, states: Collection[str], strict: bool) -> None:
        """Read states that are tensors from a checkpoint file."""
        self._restarts.done(lambda cluster: cluster.restore(path, states, strict), "a checkpoint")
        self._history.note_restoring(HeldFile(path), states, strict)

    def settle(self) -> int | None:
        """End a failed training job on all roles; return the step after which all weights stand."""
        return self._restarts.running().settle()

    def newest_step(self) -> int:
        """Return the newest step of a running job that has begun, 0 if unknown, in any thread."""
        return self._restarts.newest_step()

    def masters(self, names: Sequence[str], state: str = "model") -> dict[str, np.ndarray]:
        """Return copies of fp32 masters, or of optimizer state, by name."""
        return self._restarts.done(lambda cluster: cluster.masters(names, state), "reading weights")

    def standing(self) -> Standing:
        """Return a copy of what a coordinator of the same cluster needs to go on from here."""
        return self._restarts.done(
            lambda cluster: cluster.standing(), "reading the coordinator's state"
        )

    def take_over(self, standing: Standing) -> None:
        """Go on from where a coordinator of the same cluster stood."""
        self._change(lambda cluster: cluster.take_over(standing))

    def digest(self) -> str:
        """Return the SHA-256 of all weights."""
        return self._restarts.done(lambda cluster: cluster.digest(), "reading weights")

    def peak_bytes(self) -> dict[str, dict[str, int]]:
        """Return the peak SRAM bytes by kind of each CS node in the last job."""
        return self._restarts.done(lambda cluster: cluster.peak_bytes(), "reading reports")

    def activities(self) -> Activities:
        """Return the recorded activities, in emulated and in measured time."""
        return self._restarts.done(lambda cluster: cluster.activities(), "reading reports")

    def story(self) -> list[str]:
        """Return what recovery inside the cluster has done since the last call."""
        return self._restarts.running().story()

    def num_failures(self) -> int:
        """Return the failures that count: ``max_restarts`` of them may be answered."""
        return self._restarts.num_failures()

    def allow_failures(self, count: int) -> None:
        """Let recovery answer at most ``count`` failures, from now on."""
        self._restarts.allow(count)

    def shutdown(self) -> None:
        """End the cluster and let all files go. Idempotent."""
        self._restarts.shutdown()
        self._history.close()

    def _change(self, call: Call) -> None:
        """Make a call that changes the cluster, and remember it."""
        self._restarts.done(call, "a change")
        self._history.note(call)

    def _save_privately(self, step: int) -> None:
        """Make the base of the first step; without it, recovery begins with a checkpoint."""
        cluster = self._restarts.running()
        try:
            file = HeldFile.written_by(lambda path: cluster.save(path, tuple(CLUSTER_STATES), {}))
        except CheckpointError as error:
            log.warning("A lost cluster cannot be restarted before the first checkpoint: %s", error)
            return
        self._history.begin_at(file, step, self.standing())
