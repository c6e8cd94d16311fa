"""What a cluster is asked, as data: one dataclass for each operation, besides those of its roles.

``Install``, ``TrainWith`` and ``FinishSaving`` are those of waferstream.core.roles.commands, for
all roles or all weight servers.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from appliance.coordinator.cluster import Standing
from appliance.coordinator.roles import in_parts
from appliance.coordinator.step_results import StepResult
from waferstream.core.events import RecoveryEvent
from waferstream.core.messages.watch import NOTHING, Watch
from waferstream.core.optimizer import LossScale
from waferstream.core.program.program import ProgramKind
from waferstream.core.roles.role import Command, Result
from waferstream.machine.trace import Activities


@dataclass(frozen=True)
class Run(Command[list[StepResult]]):
    """Run steps ``first_step`` to ``last_step`` (from 1, inclusive) of an installed program.

    Args:
        kind: The program.
        first_step: The first step.
        last_step: The last step.
        check_finite: Whether every result must be finite, but for those of skipped steps.
        loss_scale: The loss scale of the first step, if the program's is dynamic.
        watch: What the roles watch.

    Raises:
        ApplianceNanError: A result is not finite, or gradients overflow at the smallest loss
            scale, and ``check_finite`` is set; or a value is not finite that is watched.
        ConfigError: The loss scale comes from a longer training.
        WaferStreamError: A role failed (see ``Roles``).
    """

    kind: ProgramKind
    first_step: int
    last_step: int
    check_finite: bool = True
    loss_scale: LossScale | None = None
    watch: Watch = NOTHING
    changes = True

    def __str__(self) -> str:
        return f"Run {self.kind} steps {self.first_step} to {self.last_step}"


@dataclass(frozen=True)
class LoadWeights(Command[None]):
    """Send tensors to the weight servers that own them; the coordinator keeps buffers.

    Args:
        values: Tensors of ``state`` by their names in a checkpoint.
        state: The key of CLUSTER_STATES that they belong to.
    """

    values: Mapping[str, torch.Tensor]
    state: str = "model"
    changes = True

    def __str__(self) -> str:
        return f"Load {len(self.values)} tensors of {self.state}"

    def parts(self) -> Iterator[LoadWeights]:
        """Yield commands that load as much as may travel at once."""
        for part in in_parts({name: value.nbytes for name, value in self.values.items()}):
            yield LoadWeights({name: self.values[name] for name in part}, self.state)


@dataclass(frozen=True)
class SaveCheckpoint(Command[None]):
    """Write a new checkpoint file: the servers write their tensors, then come ``objects``.

    Args:
        path: The file; it must not hold tensors of the servers yet.
        states: Keys of CLUSTER_STATES to write.
        objects: States that are not tensors, of JSON types.

    Raises:
        CheckpointError: The file cannot be written.
    """

    path: Path
    states: Collection[str]
    objects: Mapping[str, Any]

    def __str__(self) -> str:
        return f"Save the checkpoint {self.path.name}"


@dataclass(frozen=True)
class BeginCheckpoint(Command[Sequence[str]]):
    """Let the servers begin to write their tensors to a new file; return their names.

    Training may go on: what is written are the values of now. Each server reports beside the
    file when it has finished (``waferstream.checkpoint.parts``).

    Args:
        path: The file; it must not hold tensors of the servers yet.
        states: Keys of CLUSTER_STATES to write.

    Raises:
        CheckpointError: The file cannot be written.
    """

    path: Path
    states: Collection[str]

    def __str__(self) -> str:
        return f"Begin the checkpoint {self.path.name}"


@dataclass(frozen=True)
class RestoreCheckpoint(Command[None]):
    """Let each server read its tensors of ``states`` from a checkpoint file.

    Raises:
        CheckpointError: The file is damaged, or does not match and ``strict`` is set.
    """

    path: Path
    states: Collection[str]
    strict: bool
    changes = True

    def __str__(self) -> str:
        return f"Restore the checkpoint {self.path.name}"


@dataclass(frozen=True)
class ReadWeights(Command[dict[str, np.ndarray]]):
    """Return copies of fp32 tensors, and of buffers, by name.

    Args:
        names: Their names in a checkpoint.
        state: The key of CLUSTER_STATES that they belong to; ``model`` are masters and buffers.
    """

    names: Sequence[str]
    state: str = "model"


@dataclass(frozen=True)
class AskServers(Command[dict[str, Result]]):
    """Let every weight server do what a command of roles says; return the results by server."""

    command: Command[Result]

    @property
    def changes(self) -> bool:
        return self.command.changes

    def __str__(self) -> str:
        return f"{self.command} on every weight server"


@dataclass(frozen=True)
class HashWeights(Command[str]):
    """Return the SHA-256 of all weights."""


@dataclass(frozen=True)
class ReadStanding(Command[Standing]):
    """Return a copy of what a coordinator of the same cluster needs to go on from here."""


@dataclass(frozen=True)
class TakeOver(Command[None]):
    """Take over the state of another coordinator of the cluster; programs are installed before."""

    standing: Standing
    changes = True


@dataclass(frozen=True)
class Settle(Command[int | None]):
    """End a failed training job on all roles; return the step after which all weights stand.

    None if they differ: some of an update was done. Otherwise ``ReadWeights`` answers, too.
    """

    limit_s = 10.0  # an interrupted job has to end first


@dataclass(frozen=True)
class ReadPeakBytes(Command[dict[str, dict[str, int]]]):
    """Return the peak SRAM bytes by kind of each CS node in the last job."""


@dataclass(frozen=True)
class ReadActivities(Command[Activities]):
    """Return the recorded activities, in emulated and in measured time."""


@dataclass(frozen=True)
class ReadStory(Command[list[RecoveryEvent]]):
    """Return what recovery has done since the last time."""


@dataclass(frozen=True)
class CountFailures(Command[int]):
    """Return the failures since the last finished step that recovery has met."""


@dataclass(frozen=True)
class AllowFailures(Command[None]):
    """Let recovery answer at most ``count`` failures in a row, from now on."""

    count: int
