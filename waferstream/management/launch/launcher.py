"""What every launcher does with an admitted workflow, as plain data and a protocol."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from pydantic import Field

from waferstream.core.config import Config
from waferstream.core.errors import ClusterJobInitError

KILLED = 128 + 9
"""Exit code of a command that SIGKILL has ended, as shells count."""

ASKED = 128 + 15
"""Exit code of a command that SIGTERM has ended."""


class Launch(Config):
    """A command to start once, whoever asks how often."""

    id: str = Field(pattern=r"^[A-Za-z0-9][-_.A-Za-z0-9]{0,127}$")
    folder: Path
    """Working directory of the command; it exists, with all files in it."""

    words: tuple[str, ...] = Field(min_length=1)
    """The command behind the interpreter, such as ``run.py --num_csx=2``."""

    log: Path
    """File that gets all that the command prints; its folder exists."""

    env: dict[str, str] = Field(default_factory=dict)
    """Variables that are added to those of the launcher."""

    packages: tuple[str, ...] = ()
    """Requirements of pip that the command needs beside what the host has."""

    grace_s: float = Field(default=120.0, ge=0.0)
    """From SIGTERM to SIGKILL: the time to save a checkpoint."""

    @property
    def whole_grace_s(self) -> int:
        """The grace in whole seconds, one at least."""
        return max(1, math.ceil(self.grace_s))


@dataclass(frozen=True)
class Running:
    """The command runs, or is about to."""


@dataclass(frozen=True)
class Ended:
    """The command has ended.

    Attributes:
        exit_code: As a shell counts: 128 and its number for a signal. None if nobody knows.
        message: Why, where the exit code does not tell it.
    """

    exit_code: int | None
    message: str = ""


State = Running | Ended


class Launcher(Protocol):
    """Starts and ends commands that outlive it: the next one of the same kind finds them.

    Every method raises ClusterJobInitError where what starts the commands does not answer.
    """

    @property
    def runtime_address(self) -> str:
        """What ``runtime.address`` of a launched run must be."""
        ...

    def start(self, launch: Launch) -> None:
        """Start a command; the second start of one id changes nothing."""
        ...

    def ask_to_end(self, launch_id: str) -> None:
        """Send SIGTERM to a command, and SIGKILL after its grace. Idempotent."""
        ...

    def kill(self, launch_id: str) -> None:
        """End a command, and all that it has started, at once. Idempotent."""
        ...

    def states(self) -> Mapping[str, State]:
        """Return the state of each launch that is not forgotten."""
        ...

    def forget(self, launch_id: str) -> None:
        """Remove what is kept of a launch that has ended; its log and its files stay."""
        ...

    def close(self) -> None:
        """Leave everything as it runs. Idempotent."""
        ...


def check_folder(launch: Launch) -> None:
    """Raise ClusterJobInitError unless the working directory of a launch is there."""
    if not launch.folder.is_dir():
        raise ClusterJobInitError(
            "the working directory of a launch must exist",
            code="launch-without-folder",
            where=launch.id,
            value=launch.folder,
        )
