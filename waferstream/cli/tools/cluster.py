"""``waferstream cluster``: nodes, nodegroups, volumes, worker-cache, clear-worker-cache, plan.

All views but ``plan`` are those of the vendor's ``csctl get`` (ALCF user guides,
job-queuing-and-submission), of the emulated machine of cluster.yaml and of this host, on which its
roles run.
"""

from __future__ import annotations

import argparse
import os
import shutil
import socket
from collections.abc import Sequence
from itertools import chain, repeat
from pathlib import Path

from appliance.jobs.job import ClusterJob
from appliance.jobs.queue import running
from appliance.jobs.registry import Registry
from appliance.site import site_defaults
from appliance.spec import ClusterSpec
from cstorch import distributed
from waferstream.cli.tools.cluster_plan import CLUSTER_FLAG, PLAN, Row, machine_of
from waferstream.cli.tools.command import TABLE_FLAGS, Command, show, tell
from waferstream.core.units import format_bytes


def _nodes(given: argparse.Namespace) -> int:
    spec, jobs = machine_of(given), running(Registry().jobs())
    return show(given, [_host_row(jobs), *system_rows(spec, jobs)])


def system_rows(spec: ClusterSpec, jobs: Sequence[ClusterJob]) -> list[Row]:
    """Return a row for each system: those of the queue, else those of the running jobs.

    Args:
        spec: The machine.
        jobs: Jobs that hold systems.
    """
    holders = list(chain(*(repeat(job, job.request.num_csx) for job in jobs)))
    queue, kind = spec.runtime.queue, spec.machine.system.name
    count = max(len(holders), 0 if queue is None else queue.systems)
    return [
        _row(f"system-{index}", f"system ({kind})", job=holders[index : index + 1])
        for index in range(count)
    ]


def _host_row(jobs: Sequence[ClusterJob]) -> Row:
    """Return the row of this host, which has all roles but the systems."""
    load = os.getloadavg()[0] / (os.cpu_count() or 1)
    sizes = {
        line.split(":")[0]: int(line.split()[1])
        for line in Path("/proc/meminfo").read_text().splitlines()
    }
    used = 1 - sizes["MemAvailable"] / sizes["MemTotal"]
    own = [job for job in jobs if job.owner.host == socket.gethostname()]
    role = "management,memoryx,swarmx,worker"
    return _row(socket.gethostname(), role, f"{load:.0%}", f"{used:.0%}", own)


def _row(
    name: str, role: str, cpu: str = "", memory: str = "", job: Sequence[ClusterJob] = ()
) -> Row:
    labels = ",".join(
        f"{key}={value}" for each in job for key, value in each.request.labels.items()
    )
    return {
        "NAME": name,
        "ROLE": role,
        "CPU": cpu,
        "MEM": memory,
        "IN-USE": "yes" if job else "no",
        "STATE": "ok",
        "JOBIDS": ",".join(each.name for each in job),
        "LABELS": labels,
    }


def _nodegroups(given: argparse.Namespace) -> int:
    return show(given, group_rows(machine_of(given), running(Registry().jobs())))


def group_rows(spec: ClusterSpec, jobs: Sequence[ClusterJob]) -> list[Row]:
    """Return a row for each MemoryX group, of which a running job holds one.

    Arguments as of ``system_rows``.
    """
    queue, memoryx = spec.runtime.queue, spec.machine.memoryx
    count = max(1, len(jobs), 0 if queue is None else queue.memoryx_groups)
    held = [job.name for job in jobs]
    return [
        {
            "NAME": f"group-{index}",
            "MEMORYX": memoryx.weight_servers,
            "MEMORY": format_bytes(memoryx.dram_bytes + memoryx.flash_bytes),
            "NAMESPACE": "job-operator",
            "JOBID": held[index] if index < len(held) else "",
        }
        for index in range(count)
    ]


def _volumes(given: argparse.Namespace) -> int:
    """Show the folders of the site; a job reads the file system of its host anyway."""
    site = site_defaults()
    found = {"/": "file system of the host"}
    found |= {str(path): "mount_dirs of the site" for path in site.mount_dirs}
    found |= {str(path): "python_paths of the site" for path in site.python_paths}
    return show(given, [_volume(Path(path), about) for path, about in found.items()])


def _volume(path: Path, about: str) -> Row:
    exists = path.is_dir()
    return {
        "PATH": path,
        "TYPE": about,
        "READABLE": "yes" if exists and os.access(path, os.R_OK) else "no",
        "FREE": format_bytes(shutil.disk_usage(path).free) if exists else "",
    }


def _worker_cache(given: argparse.Namespace) -> int:
    root = Path(distributed.WORKER_CACHE_ROOT)
    _, used, left = distributed.hit_worker_cache_limit(str(root), str(root))
    row = {
        "NODE": socket.gethostname(),
        "PATH": root,
        "USED": format_bytes(used),
        "LIMIT": format_bytes(max(0, left)),
    }
    return show(given, [row])


def _clear_worker_cache(given: argparse.Namespace) -> int:
    shutil.rmtree(distributed.WORKER_CACHE_ROOT, ignore_errors=True)
    host = socket.gethostname()
    return tell(given, f"Worker cache cleared on {host}", NAME=host)


COMMANDS = (
    Command("nodes", "list this host and the systems", _nodes, (CLUSTER_FLAG, *TABLE_FLAGS)),
    Command("nodegroups", "list the MemoryX groups", _nodegroups, (CLUSTER_FLAG, *TABLE_FLAGS)),
    Command("volumes", "list the folders that jobs can read", _volumes, TABLE_FLAGS),
    Command("worker-cache", "show copies of data on this host", _worker_cache, TABLE_FLAGS),
    Command("clear-worker-cache", "delete the copies of data", _clear_worker_cache),
    PLAN,
)
