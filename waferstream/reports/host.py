"""The host and the commit of a measurement, reported beside every measured number."""

from __future__ import annotations

import os
import platform
import subprocess
from dataclasses import dataclass
from pathlib import Path

from waferstream.core.units import format_bytes


@dataclass(frozen=True)
class Host:
    """Computer that runs the arithmetic."""

    cpu: str
    cores: int  # available to this process
    memory_bytes: int
    python: str
    torch: str


def describe_host(torch_version: str) -> Host:
    """Describe this computer; the version of torch is an argument to avoid importing torch."""
    return Host(
        cpu=_cpu(),
        cores=len(os.sched_getaffinity(0)),
        memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        python=platform.python_version(),
        torch=torch_version,
    )


def _cpu() -> str:
    """Return the CPU model from /proc/cpuinfo, or the architecture if it is not listed."""
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        key, _, value = line.partition(":")
        if key.strip() == "model name":
            return value.strip()
    return platform.machine()


def git_commit(folder: Path) -> str | None:
    """Return the commit of ``folder``, with "-dirty" if files differ; None outside git."""
    command = ("git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*")
    try:
        result = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return result.stdout.strip()


def software(host: Host) -> str:
    """Return the versions of Python and torch, to stand behind that of this project."""
    return f", Python {host.python}, torch {host.torch}"


def host_text(host: Host) -> str:
    """Return processor, cores and memory of a host."""
    return f"{host.cpu}, {host.cores} cores, {format_bytes(host.memory_bytes)} of memory"
