"""Keep one command: start it, hand on signals, end what it leaves, and write how it has ended.

    python -P -S -m waferstream.management.launch.keeper FOLDER

FOLDER has ``launch.json``. The keeper goes on in a session of its own and writes ``keeper.json``,
once for each launch: then this command returns. It writes ``ended.json`` when everything that the
command has started is gone. SIGTERM is handed on, SIGUSR1 kills. It imports no library but the
standard one, so that it starts in 30 ms.
"""

from __future__ import annotations

import ctypes
import json
import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from waferstream.host.processes import started_ticks

LAUNCH, KEEPER, ENDED = "launch.json", "keeper.json", "ended.json"
KILL = signal.SIGUSR1

_HEARD = {signal.SIGCHLD, signal.SIGTERM, KILL}
_LONGEST_WAIT_S = 3600.0
_CANNOT_START = 127  # what a shell says of a command that it does not find
_SET_PDEATHSIG, _SET_CHILD_SUBREAPER = 1, 36  # prctl(2)
_LIBC = ctypes.CDLL(None)


def identity(pid: int) -> dict[str, Any] | None:
    """Return what tells a process from every other one of this host, None if it has ended."""
    ticks = started_ticks(pid)
    if ticks is None:
        return None
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return {"pid": pid, "started_ticks": ticks, "boot": boot}


def main(folder: Path) -> int:
    """Return in the first process as soon as the second one has claimed the launch."""
    reader, writer = os.pipe()
    if os.fork():
        os.close(writer)
        os.read(reader, 1)  # until the other end is closed
        return 0
    os.setsid()
    os.umask(0o077)
    signal.pthread_sigmask(signal.SIG_BLOCK, _HEARD)  # what comes early waits for the command
    _LIBC.prctl(_SET_CHILD_SUBREAPER, 1)  # what the command leaves behind becomes ours
    if _claims(folder):
        os.close(writer)
        launch = json.loads((folder / LAUNCH).read_text())
        _write(folder / ENDED, _keep(launch))
    return 0


def _claims(folder: Path) -> bool:
    """Write that this process keeps the launch; return False if another one does."""
    own = folder / f".{KEEPER}.{os.getpid()}"
    own.write_text(json.dumps(identity(os.getpid())))
    try:
        os.link(own, folder / KEEPER)
    except FileExistsError:
        return False
    finally:
        own.unlink()
    return True


def _write(path: Path, data: Any) -> None:
    """Write JSON so that a reader finds all of it, or nothing."""
    partial = path.with_name(f".{path.name}")
    partial.write_text(json.dumps(data))
    partial.replace(path)


def _keep(launch: dict[str, Any]) -> dict[str, Any]:
    """Run the commands of a launch one after the other, until one fails; return how that went."""
    for words in launch["commands"]:
        try:
            pid = _started(words, launch)
        except OSError as error:
            return {"exit_code": _CANNOT_START, "message": str(error)}
        code, message = _guide(pid, launch["grace_s"])
        _end_children()
        if code:
            break
    return {"exit_code": code if code >= 0 else 128 - code, "message": message}


def _started(words: list[str], launch: dict[str, Any]) -> int:
    """Start a command in a process group of its own; return its number."""
    with open(launch["log"], "ab") as log:
        return subprocess.Popen(
            words,
            cwd=launch["folder"],
            env=launch["env"],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            process_group=0,
            preexec_fn=_follow_keeper,  # noqa: PLW1509  (this process has one thread)
        ).pid


def _follow_keeper() -> None:
    """Let this process, which becomes the command, hear signals and die with its keeper."""
    _LIBC.prctl(_SET_PDEATHSIG, signal.SIGKILL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _HEARD)


def _guide(pid: int, grace_s: int) -> tuple[int, str]:
    """Hand signals on to a command until it ends; return its code, and what the code leaves out."""
    message, deadline_s = "", math.inf
    while (code := _reaped(pid)) is None:
        left_s = min(deadline_s - time.monotonic(), _LONGEST_WAIT_S)
        heard = signal.sigtimedwait(_HEARD, max(0.0, left_s))
        if heard is not None and heard.si_signo == signal.SIGTERM:
            os.kill(pid, signal.SIGTERM)
            deadline_s = min(deadline_s, time.monotonic() + grace_s)
        elif heard is not None and heard.si_signo == KILL:
            os.kill(pid, signal.SIGKILL)
        elif time.monotonic() >= deadline_s:
            message = f"it did not end within {grace_s} s"
            os.kill(pid, signal.SIGKILL)
    return code, message


def _reaped(pid: int) -> int | None:
    """Reap what has ended; return the code of the command if it has."""
    while True:
        ended, status = os.waitpid(-1, os.WNOHANG)
        if ended == pid:
            return os.waitstatus_to_exitcode(status)
        if not ended:
            return None


def _end_children() -> None:
    """Kill what the command has left; children of the killed become ours, and are next."""
    children = Path(f"/proc/self/task/{os.getpid()}/children")
    while left := children.read_text().split():
        for pid in map(int, left):
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
