"""Where and on which code a number was measured; stands beside every measured number."""

from __future__ import annotations

import os
import platform
import subprocess
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Host:
    """The computer that does the arithmetic."""

    cpu: str
    cores: int  # that this process may use
    memory_bytes: int
    python: str
    torch: str


def describe_host(torch_version: str) -> Host:
    """This computer; torch's version is passed in because telemetry does not import torch."""
    return Host(
        cpu=_cpu(),
        cores=len(os.sched_getaffinity(0)),
        memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        python=platform.python_version(),
        torch=torch_version,
    )


def _cpu() -> str:
    """The model's name where Linux tells it, else the architecture."""
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        key, _, value = line.partition(":")
        if key.strip() == "model name":
            return value.strip()
    return platform.machine()


def git_commit(folder: Path) -> str | None:
    """The commit checked out in ``folder``, "-dirty" if files differ; None outside git."""
    command = ("git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*")
    try:
        result = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return result.stdout.strip()
