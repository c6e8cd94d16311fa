"""The commands and the checkpoint from which a replacement cluster is rebuilt.

base      the newest checkpoint with weights and optimizer state, or a private one of the moment
          before the first step; with it the standing of the coordinator
commands  all that has changed the cluster since

The file of a checkpoint stays readable while it is needed, renamed or removed.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from appliance.coordinator.cluster import Cluster, Standing
from appliance.coordinator.commands import RestoreCheckpoint, TakeOver
from waferstream.checkpoint import CLUSTER_STATES
from waferstream.core.errors import ApplianceNanError
from waferstream.core.program.program import ProgramKind
from waferstream.core.roles.commands import Install, TrainWith
from waferstream.core.roles.installation import Installation
from waferstream.core.roles.role import Command

_PREFIX = "waferstream-held-"
_FILE = "weights.mdl"


@dataclass(frozen=True)
class _Restoring:
    """States that were read from a checkpoint, which is kept open."""

    file: HeldFile
    states: Collection[str]
    strict: bool

    def repeat(self, cluster: Cluster) -> None:
        with self.file.named() as path:
            cluster.do(RestoreCheckpoint(path, self.states, self.strict))


@dataclass(frozen=True)
class _Base:
    """A checkpoint, and what belongs to the same moment but is not in it."""

    file: HeldFile
    step: int
    standing: Standing
    installed: Mapping[ProgramKind, Installation]
    restores: Sequence[_Restoring]  # of optimizer state and masks that no program has asked for yet


class History:
    """A base and the commands given since.

    Attributes:
        last_step: Last step of training that is done.
    """

    def __init__(self) -> None:
        self.last_step = 0
        self._base: _Base | None = None
        self._commands: list[Command[Any] | _Restoring] = []
        self._installed: dict[ProgramKind, Installation] = {}
        self._restores: list[_Restoring] = []
        self._held: list[HeldFile] = []  # checkpoints that were restored since the base

    @property
    def has_begun(self) -> bool:
        """Whether there is a base, so that a lost cluster can be followed by another."""
        return self._base is not None

    @property
    def first_step(self) -> int:
        """Step of the base, 0 without one."""
        return 0 if self._base is None else self._base.step

    @property
    def num_commands(self) -> int:
        """Number of commands since the base."""
        return len(self._commands)

    def note(self, command: Command[Any]) -> None:
        """Remember a command that has changed the cluster."""
        match command:
            case Install(installation):
                self._installed[installation.kind] = installation
                if installation.kind.updates:
                    self._restores.clear()
            case TrainWith(optimizer):
                trained = replace(self._installed[ProgramKind.TRAIN], optimizer=optimizer)
                self._installed[ProgramKind.TRAIN] = trained
            case RestoreCheckpoint(path, states, strict):
                self._note_restoring(HeldFile(path), states, strict)
                return
        self._commands.append(command)

    def _note_restoring(self, file: HeldFile, states: Collection[str], strict: bool) -> None:
        self._held.append(file)
        self._commands.append(_Restoring(file, states, strict))
        later = [state for state in CLUSTER_STATES if state in states and state != "model"]
        if later and ProgramKind.TRAIN not in self._installed:
            self._restores.append(_Restoring(file, later, strict))

    def is_whole(self, states: Collection[str]) -> bool:
        """Return whether states are all that the weight servers hold; masks are there by rule."""
        training = self._installed.get(ProgramKind.TRAIN)
        is_sparse = bool(training and training.optimizer and training.optimizer.sparsity)
        return set(states) >= CLUSTER_STATES.keys() - (set() if is_sparse else {"sparsity"})

    def begin_at(self, file: HeldFile, step: int, standing: Standing) -> None:
        """Make a checkpoint of this moment the base, and forget the commands before."""
        before, held = self._base, self._held
        self.last_step = step
        self._base = _Base(file, step, standing, dict(self._installed), tuple(self._restores))
        self._commands = []
        if not self._restores:
            self._held = []
            for old in held:
                old.close()
        if before is not None:
            before.file.close()

    def restore(self, cluster: Cluster) -> None:
        """Bring a new cluster to the moment of the base."""
        base = self._base
        assert base is not None
        for installation in base.installed.values():
            cluster.do(Install(installation))
        _Restoring(base.file, tuple(CLUSTER_STATES), strict=True).repeat(cluster)
        for restoring in base.restores:
            restoring.repeat(cluster)
        cluster.do(TakeOver(base.standing))

    def repeat(self, cluster: Cluster) -> None:
        """Give a cluster all commands since the base once more."""
        for command in self._commands:
            if isinstance(command, _Restoring):
                command.repeat(cluster)
                continue
            with suppress(ApplianceNanError):  # the steps were done
                cluster.do(command)

    def close(self) -> None:
        """Let all files go. Idempotent."""
        for file in [*self._held, *([self._base.file] if self._base else [])]:
            file.close()


class HeldFile:
    """An open file: its bytes can be read after it was renamed or removed, until it is closed."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("rb")

    @classmethod
    def written_by(cls, write: Callable[[Path], object]) -> HeldFile:
        """Hold a new file that ``write`` makes; its name is gone afterwards."""
        with _temporary() as path:
            write(path)
            return cls(path)

    @contextmanager
    def named(self) -> Iterator[Path]:
        """Yield a path to the file: its name now, or that of a copy if it has none.

        HDF5 opens files by their names only.
        """
        link = f"/proc/self/fd/{self._file.fileno()}"
        name = Path(os.readlink(link))
        if _same_file(name, Path(link)):
            yield name
            return
        with _temporary() as path:
            self._file.seek(0)
            with path.open("wb") as copy:
                shutil.copyfileobj(self._file, copy)
            yield path

    def close(self) -> None:
        """Let the file go. Idempotent."""
        self._file.close()


@contextmanager
def _temporary() -> Iterator[Path]:
    """Yield a path for a file that is removed at the end, in a folder that only this user reads.

    Folders of killed processes are removed, too.
    """
    _remove_abandoned(Path(tempfile.gettempdir()))
    with tempfile.TemporaryDirectory(prefix=f"{_PREFIX}{os.getpid()}-") as folder:
        yield Path(folder) / _FILE


def _remove_abandoned(folder: Path) -> None:
    """Remove what processes of this user that have ended left behind."""
    for path in folder.glob(f"{_PREFIX}*"):
        owner = re.match(rf"{_PREFIX}(\d+)-", path.name)
        if owner and not Path(f"/proc/{owner[1]}").exists():
            shutil.rmtree(path, ignore_errors=True)  # it may be another user's


def _same_file(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other)
    except OSError:
        return False
