"""This host: its load, the folders that jobs can read, and the copies of their data."""

from __future__ import annotations

import os
import shutil
import socket
from dataclasses import dataclass
from pathlib import Path

from appliance.site import site_defaults
from waferstream.cli.frame.commands import command
from waferstream.cli.frame.output import show, tell
from waferstream.cli.tools.ctl.tables import Row
from waferstream.core.units import format_bytes


@dataclass(frozen=True)
class HostLoad:
    """How busy a host is."""

    name: str
    cpu: float
    """Processes that run or wait, of its processors."""

    memory: float
    """What is used of its memory."""


def load_of_this_host() -> HostLoad:
    """Return how busy this host is."""
    sizes = {
        line.split(":")[0]: int(line.split()[1])
        for line in Path("/proc/meminfo").read_text().splitlines()
    }
    cpu = os.getloadavg()[0] / (os.cpu_count() or 1)
    return HostLoad(socket.gethostname(), cpu, 1 - sizes["MemAvailable"] / sizes["MemTotal"])


@command("ctl get volumes")
def list_volumes() -> int:
    """List the folders that jobs can read: the file system of their host, and those of the site."""
    site = site_defaults()
    found = {"/": "file system of the host"}
    found |= {str(path): "mount_dirs of the site" for path in site.mount_dirs}
    found |= {str(path): "python_paths of the site" for path in site.python_paths}
    return show([_volume(Path(path), about) for path, about in found.items()])


def _volume(path: Path, about: str) -> Row:
    exists = path.is_dir()
    return {
        "PATH": str(path),
        "TYPE": about,
        "READABLE": "yes" if exists and os.access(path, os.R_OK) else "no",
        "FREE": format_bytes(shutil.disk_usage(path).free) if exists else "",
    }


@command("ctl get worker-cache")
def show_worker_cache() -> int:
    """Show copies of data on this host."""
    from cstorch import distributed  # noqa: PLC0415  (torch)

    root = Path(distributed.WORKER_CACHE_ROOT)
    _, used, left = distributed.hit_worker_cache_limit(str(root), str(root))
    row = {
        "NODE": socket.gethostname(),
        "PATH": str(root),
        "USED": format_bytes(used),
        "LIMIT": format_bytes(max(0, left)),
    }
    return show([row])


@command("ctl clear-worker-cache")
def clear_worker_cache() -> int:
    """Delete the copies of data on this host."""
    from cstorch import distributed  # noqa: PLC0415  (torch)

    shutil.rmtree(distributed.WORKER_CACHE_ROOT, ignore_errors=True)
    host = socket.gethostname()
    return tell(f"Worker cache cleared on {host}", NAME=host)
