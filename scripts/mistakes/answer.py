"""Type a mistake in a process of its own, and judge the answer."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any

from scripts.mistakes.folder import prepared
from scripts.mistakes.mistake import Typed

ROOT = Path(__file__).resolve().parents[2]
LIMIT_S = 2.0
"""The most processor time of an answer for which nothing must be computed."""
_TIMEOUT_S = 300
_MOST_LINES = 12


@dataclass(frozen=True)
class Answer:
    """What a mistake got: words, exit code, text, processor time, and what it lacks."""

    words: str
    code: int
    text: str
    cpu_s: float
    needs: str
    lacks: tuple[str, ...]
    """Why the answer is no good one; empty if it is."""

    def dump(self) -> dict[str, Any]:
        """Return it as plain data."""
        return asdict(self) | {"lacks": list(self.lacks)}


def answer_of(typed: Typed) -> Answer:
    """Type a command line in a folder of its own, as a user would, and judge the answer."""
    with prepared(typed) as folder:
        before = _names(folder)
        code, output, cpu_s = _run(typed, folder)
        left = sorted(_names(folder) - before)
        output = output.replace(f"{folder}/", "").replace(str(folder), ".")
    lacks = [f"says nothing of {word!r}" for word in typed.expects if word not in output]
    if code not in typed.code:
        lacks.append(f"exit code {code}")
    if "Traceback (most recent call last)" in output:
        lacks.append("has a traceback")
    if f'File "{ROOT}' in output:
        lacks.append("shows lines of this project")
    if cpu_s > LIMIT_S and not typed.needs:
        lacks.append(f"takes {cpu_s:.1f} s")
    if left := [name for name in left if not name.startswith(typed.leaves or "/")]:
        lacks.append(f"leaves {', '.join(left)}")
    return Answer(
        typed.words, code, _said(output, typed.expects), round(cpu_s, 2), typed.needs, tuple(lacks)
    )


def _run(typed: Typed, folder: Path) -> tuple[int, str, float]:
    """Return exit code, output and processor time of the process and its children."""
    with TemporaryFile("w+") as output:
        process = subprocess.Popen(
            _command(typed.words),
            cwd=folder,
            env=_environment(typed),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        _interrupt(process, typed.signals, output)
        code, cpu_s = _ended(process)
        output.seek(0)
        return code, output.read(), cpu_s


def _command(words: str) -> list[str]:
    """Return the words of a process: ``waferstream`` and ``python`` are those of this Python."""
    first, *rest = shlex.split(words)
    program = [sys.executable, *(["-m", "waferstream"] if first == "waferstream" else [])]
    return [*program, *rest]


def _environment(typed: Typed) -> dict[str, str]:
    path = os.pathsep.join(filter(None, (typed.environment.get("PYTHONPATH"), str(ROOT))))
    plain = {"COLUMNS": "100", "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1"}
    return {**os.environ, **plain, **typed.environment, "PYTHONPATH": path}


def _interrupt(process: subprocess.Popen[bytes], signals: Sequence[str], output: IO[str]) -> None:
    """Send SIGINT after each of these texts, as Ctrl-C does."""
    for text in signals:
        deadline = time.monotonic() + _TIMEOUT_S
        while text not in os.pread(output.fileno(), 1 << 20, 0).decode(errors="replace"):
            if _has_ended(process.pid) or time.monotonic() > deadline:
                return
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)


def _has_ended(pid: int) -> bool:
    """Return whether a process has ended; it stays, to be asked for its time."""
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _ended(process: subprocess.Popen[bytes]) -> tuple[int, float]:
    """Wait for a process; return its exit code as a shell shows it, and its processor time."""
    deadline = time.monotonic() + _TIMEOUT_S
    while True:
        pid, status, usage = os.wait4(process.pid, os.WNOHANG)
        if pid:
            code = os.waitstatus_to_exitcode(status)
            process.returncode = code
            return (code if code >= 0 else 128 - code), usage.ru_utime + usage.ru_stime
        if time.monotonic() > deadline:
            process.kill()
        time.sleep(0.02)


def _names(folder: Path) -> set[str]:
    """Return what is in a folder, but for what Python and Linux keep."""
    return {
        str(path.relative_to(folder))
        for path in folder.rglob("*")
        if "__pycache__" not in path.parts
    }


def _said(output: str, expects: Sequence[str]) -> str:
    """Return the error with the lines of the program above it; else the lines that say why."""
    lines = [line.rstrip() for line in output.splitlines() if line.strip()]
    errors = [number for number, line in enumerate(lines) if line.startswith("Error:")]
    if not errors:
        found = [line for line in lines if any(word in line for word in expects)]
        return "\n".join(found or lines[-_MOST_LINES:])
    first = errors[-1]
    while first and lines[first - 1].startswith("  "):
        first -= 1
    return "\n".join(lines[first:])
