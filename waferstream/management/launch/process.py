"""Launches as processes of this host, each in a session of its own under a keeper."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from waferstream.core.errors import ClusterJobInitError
from waferstream.host.files import write_json
from waferstream.host.user_state import make_private
from waferstream.management.launch import environment, keeper
from waferstream.management.launch.launcher import (
    Ended,
    Launch,
    Running,
    State,
    check_folder,
)

_ROOT = Path(__file__).parents[3]
_START_S = 30.0  # a keeper needs some 30 ms; a busy host longer


class ProcessLauncher:
    """Starts processes of this host; what is known of them is in files, one folder for each.

    Args:
        folder: Of these files; only this user can enter it.
    """

    runtime_address = "local"

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        make_private(folder)

    def start(self, launch: Launch) -> None:
        """Start a command; the second start of one id changes nothing.

        Raises:
            ClusterJobInitError: Its folder is not there, or this host starts no process any more.
        """
        check_folder(launch)
        folder = self._folder / launch.id
        if (folder / keeper.KEEPER).exists():
            return
        folder.mkdir(mode=0o700, exist_ok=True)
        write_json(folder / keeper.LAUNCH, _plan(launch, self._folder))
        _start_keeper(folder)

    def ask_to_end(self, launch_id: str) -> None:
        """Send SIGTERM to a command, and SIGKILL after its grace. Idempotent."""
        self._signal(launch_id, signal.SIGTERM)

    def kill(self, launch_id: str) -> None:
        """End a command, and all that it has started, at once. Idempotent."""
        self._signal(launch_id, keeper.KILL)

    def states(self) -> Mapping[str, State]:
        """Return the state of each launch that is not forgotten."""
        kept = self._folder.glob(f"*/{keeper.KEEPER}")
        return {file.parent.name: _state(file.parent) for file in kept}

    def forget(self, launch_id: str) -> None:
        """Remove what is kept of a launch that has ended; its log and its files stay."""
        folder = self._folder / launch_id
        if folder.exists() and isinstance(_state(folder), Ended):
            shutil.rmtree(folder)

    def close(self) -> None:
        """Leave everything as it runs: files and keepers need nobody."""

    def _signal(self, launch_id: str, number: signal.Signals) -> None:
        """Signal the keeper of a launch, never a later process of its number."""
        kept = _read(self._folder / launch_id / keeper.KEEPER)
        if kept is None:
            return
        with suppress(ProcessLookupError):
            descriptor = os.pidfd_open(kept["pid"])
            try:
                if keeper.identity(kept["pid"]) == kept:
                    signal.pidfd_send_signal(descriptor, number)
            finally:
                os.close(descriptor)


def _start_keeper(folder: Path) -> None:
    """Start the keeper of a launch; it has claimed the launch when this returns."""
    words = [sys.executable, "-P", "-S", "-m", keeper.__name__, str(folder)]
    variables = {**os.environ, "PYTHONPATH": str(_ROOT)}
    reason: object = None
    with (folder / "keeper.log").open("wb") as log:
        try:
            subprocess.run(
                words,
                env=variables,
                check=True,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                timeout=_START_S,
            )
        except (OSError, subprocess.SubprocessError) as error:
            reason = error
    if not (folder / keeper.KEEPER).exists():
        raise ClusterJobInitError(
            "a process could not be started",
            code="launch-not-started",
            where=str(folder),
            value=reason,
            remedy="keeper.log there has its last words",
        )


def _plan(launch: Launch, folder: Path) -> dict[str, Any]:
    """Return what a keeper needs to know of a launch."""
    prepared, interpreter = environment.commands(launch.packages, folder)
    return {
        "commands": [*prepared, [interpreter, *launch.words]],
        "folder": str(launch.folder),
        "log": str(launch.log),
        "env": {**os.environ, **launch.env},
        "grace_s": launch.whole_grace_s,
    }


def _state(folder: Path) -> State:
    """Return the state of a launch; its keeper is looked at first, as it writes before it ends."""
    kept = _read(folder / keeper.KEEPER)
    if kept is not None and keeper.identity(kept["pid"]) == kept:
        return Running()
    ended = _read(folder / keeper.ENDED)
    if ended is not None:
        return Ended(**ended)
    return Ended(None, "its process was killed, or its host started again")


def _read(path: Path) -> dict[str, Any] | None:
    """Return the JSON of a file, None if there is none."""
    try:
        data: dict[str, Any] = json.loads(path.read_text())
    except FileNotFoundError:
        return None
    return data
