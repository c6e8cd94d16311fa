"""What a role is asked between jobs, as data: one dataclass for each operation.

A command travels as it is to where the role runs, through everything that wraps roles (faults,
logs, replicas, recovery, Ray), and the role's ``do`` has a ``case`` for it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from waferstream.core.optimizer import OptimizerSpec
from waferstream.core.program.program import TensorSpec
from waferstream.core.roles.installation import Installation
from waferstream.core.roles.role import Command, Progress


@dataclass(frozen=True)
class Install(Command[None]):
    """Keep this role's part of a program; a later program of the same kind replaces it."""

    installation: Installation
    changes = True

    def __str__(self) -> str:
        return f"Install the {self.installation.kind} program"


@dataclass(frozen=True)
class TrainWith(Command[None]):
    """Let further training steps end with another update; the program stays the same.

    States that the rule has already are kept.
    """

    optimizer: OptimizerSpec
    changes = True

    def __str__(self) -> str:
        return f"Train with {self.optimizer.rule}"


@dataclass(frozen=True)
class Fill(Command[None]):
    """Overwrite tensors of one checkpoint state by name; ``model`` are the masters."""

    values: Mapping[str, torch.Tensor]
    state: str = "model"
    changes = True

    def __str__(self) -> str:
        return f"Fill {len(self.values)} tensors of {self.state}"


@dataclass(frozen=True)
class ReadLayout(Command[list[TensorSpec]]):
    """Return key, shape and dtype of every tensor of some checkpoint states."""

    states: Collection[str]


@dataclass(frozen=True)
class Save(Command[None]):
    """Begin to write tensors to a file, as they are now, and report beside it when done.

    Args:
        path: The file, which has space for every tensor.
        offsets: The place of each tensor in the file, by its key.
        is_background: Whether training goes on meanwhile, and has precedence.
    """

    path: Path
    offsets: Mapping[str, int]
    is_background: bool

    def __str__(self) -> str:
        return f"Begin to save {len(self.offsets)} tensors to {self.path}"


@dataclass(frozen=True)
class FinishSaving(Command[None]):
    """Wait until the report about the last ``Save`` is there (waferstream.checkpoint.parts)."""


@dataclass(frozen=True)
class Restore(Command[None]):
    """Read the tensors of one checkpoint state from a file.

    Without ``strict``, tensors that the file lacks keep their values.

    Raises:
        CheckpointError: The file is damaged or does not match the parameters.
    """

    path: Path
    state: str
    strict: bool
    changes = True

    def __str__(self) -> str:
        return f"Restore {self.state} from {self.path}"


@dataclass(frozen=True)
class ReadMasters(Command[list[np.ndarray]]):
    """Return copies of fp32 tensors of one checkpoint state; ``model`` are the masters."""

    names: Sequence[str]
    state: str = "model"

    def __str__(self) -> str:
        return f"Read {len(self.names)} tensors of {self.state}"


@dataclass(frozen=True)
class Digest(Command[str]):
    """Return the SHA-256 of the fp32 masters of one role."""


@dataclass(frozen=True)
class ReadProgress(Command[Progress | None]):
    """Return how far the last job came, None if it was not protected or there was none."""


@dataclass(frozen=True)
class ReadStepsHeld(Command[frozenset[int]]):
    """Return the steps of the last job after which the weights stand.

    None if it updates no weight here, two if it has ended during an update.
    """


@dataclass(frozen=True)
class Rollback(Command[None]):
    """Undo what the job ``attempt`` has updated after ``step``, at most one step.

    A role that has not begun that job has nothing to undo.
    """

    attempt: int
    step: int
    changes = True

    def __str__(self) -> str:
        return f"Undo what came after step {self.step}"


@dataclass(frozen=True)
class CorruptNextGradient(Command[None]):
    """Flip a bit of the next gradient that a CS node computes: a fault on demand."""
