"""A running cluster as its user controls it, in this process or on Ray.

Both kinds of cluster run the same Coordinator; on Ray it is an actor of its own, behind a proxy
with the same methods. ``appliance.starting`` starts them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch

from appliance.coordinator.emulated_clock import EmulatedClock
from appliance.coordinator.measured_record import MeasuredRecord
from appliance.coordinator.step_results import StepResult
from timing.trace import Activities
from wsc.core.errors import ApplianceRuntimeServerError
from wsc.core.messages.watch import NOTHING, Watch
from wsc.core.optimizer.loss_scale import LossScale
from wsc.core.optimizer.spec import OptimizerSpec
from wsc.core.program.program import Mode
from wsc.core.roles.installation import Installation


@dataclass(frozen=True)
class Standing:
    """What a coordinator has learnt since its start: buffers, emulated clock, activities."""

    buffers: Mapping[str, torch.Tensor]
    clock: EmulatedClock
    measured: MeasuredRecord


class Cluster(Protocol):
    """A running cluster. ``Coordinator`` implements it, and documents each method.

    After ``shutdown`` every other method raises ApplianceRuntimeServerError.
    """

    def install(self, installation: Installation) -> None:
        """Give every role its part of a program."""

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

    def settle(self) -> int | None:
        """End a failed training job on all roles; return the step after which all weights stand.

        None if they differ: some of an update was done. Otherwise ``masters`` answers, too.
        """

    def newest_step(self) -> int:
        """Return the newest step of a running job that has begun, 0 if unknown, in any thread."""

    def train_with(self, optimizer: OptimizerSpec) -> None:
        """Let further training steps end with another update of the same parameters."""

    def load_weights(self, values: Mapping[str, torch.Tensor], state: str = "model") -> None:
        """Send weights, or optimizer state, to the weight servers that own them."""

    def save(self, path: Path, states: Collection[str], objects: Mapping[str, Any]) -> None:
        """Write a checkpoint file: states that are tensors, then ``objects``."""

    def begin_save(
        self, path: Path, states: Collection[str], is_background: bool = True
    ) -> Sequence[str]:
        """Begin to write states that are tensors to a file; return the servers that write."""

    def finish_saving(self) -> None:
        """Wait until every server has reported about the last save that was begun."""

    def restore(self, path: Path, states: Collection[str], strict: bool) -> None:
        """Read states that are tensors from a checkpoint file."""

    def masters(self, names: Sequence[str], state: str = "model") -> dict[str, np.ndarray]:
        """Return copies of fp32 masters, or of optimizer state, by name."""

    def standing(self) -> Standing:
        """Return a copy of what a coordinator of the same cluster needs to go on from here."""

    def take_over(self, standing: Standing) -> None:
        """Go on from where a coordinator of the same cluster stood."""

    def digest(self) -> str:
        """Return the SHA-256 of all weights."""

    def peak_bytes(self) -> dict[str, dict[str, int]]:
        """Return the peak SRAM bytes by kind of each CS node in the last job."""

    def activities(self) -> Activities:
        """Return the recorded activities, in emulated and in measured time."""

    def story(self) -> list[str]:
        """Return what recovery has done since the last call, a line for each event."""

    def num_failures(self) -> int:
        """Return the failures since the last finished step that recovery has met."""

    def allow_failures(self, count: int) -> None:
        """Let recovery answer at most ``count`` failures in a row, from now on."""

    def shutdown(self) -> None:
        """End every process that the cluster started. Idempotent."""


def cluster_ended() -> ApplianceRuntimeServerError:
    """Return the error for a call to a cluster after its end."""
    return ApplianceRuntimeServerError(
        "the cluster has ended",
        code="cluster-ended",
        rule="a job that fails or is interrupted ends its cluster",
        remedy="make a new backend and continue from a checkpoint",
    )
