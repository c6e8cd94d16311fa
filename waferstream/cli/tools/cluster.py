"""``waferstream cluster``: views of its machine and its host, a plan of hosts, and a server.

All views but ``plan`` and ``serve`` are those of the vendor's ``csctl get`` (ALCF user guides,
job-queuing-and-submission), of the emulated machine of cluster.yaml and of this host, on which its
roles run.
"""

from __future__ import annotations

import argparse
import os
import shutil
import socket
import sys
from collections.abc import Sequence
from itertools import chain, repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any

from appliance.jobs.job import ClusterJob
from appliance.jobs.queue import MOST_SYSTEMS, running
from appliance.jobs.store import JobStore
from appliance.placement.placer import Host, Placement, Placer
from appliance.remote.access import access_path
from appliance.site import site_defaults
from appliance.spec import ClusterSpec, load_cluster
from cstorch import distributed
from waferstream.cli.tools.command import TABLE_FLAGS, Command, argument, show, tell
from waferstream.config.phases import load_params
from waferstream.core.errors import ConfigError
from waferstream.core.optimizer import OptimizerSpec
from waferstream.core.units import format_bytes

if TYPE_CHECKING:
    from appliance.elaboration.host_need import HostNeed


_DEFAULT_FILE = Path("cluster.yaml")

_MOST_HOSTS = 10_000  # several for each of the systems that a cluster may have

Row = dict[str, Any]
"""A row of a table, by column."""


def _plan(given: argparse.Namespace) -> int:
    if not 1 <= given.num_csx <= MOST_SYSTEMS:
        raise ConfigError(
            f"--num_csx must be 1 to {MOST_SYSTEMS:,}", code="out-of-range", value=given.num_csx
        )
    spec = machine_of(given)
    placement = _placer(spec, given.hosts).place(given.num_csx)
    workers = min(given.num_csx, spec.runtime.input_workers)
    num_servers = spec.machine.memoryx.weight_servers
    needs = () if given.params is None else _needs(given.params, spec, placement)
    rows = plan_rows(placement, num_servers, workers, needs)
    code = show(given, rows)
    if any(row["FITS"] == "no" for row in rows):
        from appliance.elaboration.host_need import remedy_on_hosts  # noqa: PLC0415  (torch)

        remedy = remedy_on_hosts(placement, num_servers, spec.runtime.flash)
        print(f"Some hosts lack memory; remedy: {remedy}", file=sys.stderr)
    return code


def _needs(path: Path, spec: ClusterSpec, placement: Placement) -> list[HostNeed]:
    """Return the bytes that the training of a params file needs at least on each host."""
    from appliance.elaboration.host_need import needs_of_hosts  # noqa: PLC0415  (torch)
    from memoryx.sparsity.packing import held_bytes, packable  # noqa: PLC0415
    from waferstream.simulation.session import captured_studies, labels_of  # noqa: PLC0415

    params = load_params(path)
    (study,) = captured_studies(params, [spec], [placement.num_systems])
    program = study.costed(placement.num_systems).program
    simulator, num_servers = study.simulator, spec.machine.memoryx.weight_servers
    rule = OptimizerSpec(labels_of(params, study).optimizer, (), sparsity=tuple(simulator.sparse))
    sparse = packable(rule) if simulator.sparse else ()
    held = held_bytes(program, simulator.update.state_bytes, sparse)
    return needs_of_hosts(program, held, spec.runtime, num_servers, placement)


def plan_rows(
    placement: Placement, num_servers: int, num_workers: int, needs: Sequence[HostNeed] = ()
) -> list[Row]:
    """Return a row for each host that has roles, with their names by kind.

    Args:
        placement: Where the roles run.
        num_servers: Weight servers.
        num_workers: Input workers.
        needs: What the roles of each host need at least, if the model is known.
    """
    table = placement.roles(num_servers, num_workers)
    hosts = {host.address: host for host in placement.hosts}
    needed = dict(zip(hosts, needs, strict=False))
    kinds = {"COORDINATOR": "crd", "MEMORYX": "wgt", "SWARMX": "br", "CSX": "csx", "WORKERS": "wrk"}
    return [
        {
            "HOST": address,
            "RACK": hosts[address].rack,
            **{
                title: ",".join(name for name in names if name.rpartition("-")[0] == kind)
                for title, kind in kinds.items()
            },
            **_memory(needed.get(address), hosts[address].free_bytes),
        }
        for address, names in table.items()
        if names
    ]


def _memory(need: HostNeed | None, free: int | None) -> Row:
    """Return the cells of a host's memory: needed in training and in loading, free, enough or not.

    Those of unknown numbers are empty.
    """
    fits = "" if need is None or free is None else "yes" if need.total <= free else "no"
    return {
        "NEEDS": "" if need is None else format_bytes(sum(need.training.values())),
        "LOADING": "" if need is None else format_bytes(need.loading),
        "FREE": "" if free is None else format_bytes(free),
        "FITS": fits,
    }


def _placer(spec: ClusterSpec, hosts: Sequence[Host] | None) -> Placer:
    """Return the placer of roles on simulated hosts, or on those of the Ray cluster."""
    runtime, fan_out = spec.runtime, spec.machine.swarmx.fan_out
    if hosts is not None:
        return Placer(tuple(hosts), fan_out, runtime.placement, runtime.server_placement)
    from appliance.ray.hosts.survey import Survey  # noqa: PLC0415  (takes half a second)

    found = Survey(runtime)
    try:
        return found.placer(fan_out)
    finally:
        found.close()


def _hosts(text: str) -> list[Host]:
    """Parse ``3x4``: three hosts of four CPUs; ``3x4x256``: with 256 GiB of memory each."""
    parts = text.split("x")
    if len(parts) not in (2, 3) or not all(part.isdecimal() for part in parts):
        raise argparse.ArgumentTypeError(
            f"{text!r} must be HOSTSxCPUS or HOSTSxCPUSxGIB, such as 3x4 or 3x4x256"
        )
    count, cpus, *gib = map(int, parts)
    if not 1 <= count <= _MOST_HOSTS:
        raise argparse.ArgumentTypeError(f"{text!r} must have 1 to {_MOST_HOSTS:,} hosts")
    free = gib[0] << 30 if gib else None
    return [Host(str(i), f"host-{i}", cpus, cpus, free_bytes=free) for i in range(count)]


def machine_of(given: argparse.Namespace) -> ClusterSpec:
    """Return the named machine, that of the working folder, or the default one."""
    if given.cluster is not None:
        return load_cluster(given.cluster)
    return load_cluster(_DEFAULT_FILE) if _DEFAULT_FILE.is_file() else ClusterSpec()


CLUSTER_FLAG = argument(
    "--cluster", type=Path, help="file of the machine (default: ./cluster.yaml)"
)

_PLAN_FLAGS = (
    CLUSTER_FLAG,
    argument("--num_csx", type=int, default=1, help="CS systems (default: 1)"),
    argument("--params", type=Path, help="training whose need of memory is shown for each host"),
    argument(
        "--hosts",
        type=_hosts,
        help="simulated hosts with CPUs and, if given, GiB of memory each, such as 3x4 or 3x4x256 "
        "(default: those of Ray)",
    ),
    *TABLE_FLAGS,
)

PLAN = Command("plan", "show which role would run on which host", _plan, _PLAN_FLAGS)


def _serve(given: argparse.Namespace) -> int:
    """Lend a cluster to programs, one after the other, until a signal comes."""
    from appliance.remote.host import ClusterHost  # noqa: PLC0415  (torch)
    from appliance.remote.server import serving  # noqa: PLC0415  (gRPC)

    spec = machine_of(given)
    host = ClusterHost(spec, given.lease_s)
    with serving(host, f"{given.host}:{given.port}", given.lease_s) as access:
        path: Path = given.credentials or access_path(access.address)
        access.write(path)
        try:
            tell(given, f"{access.address}  credentials: {path}", ADDRESS=access.address, PATH=path)
            sys.stdout.flush()
            host.serve()
        finally:
            path.unlink(missing_ok=True)
    return 0


SERVE = Command(
    "serve",
    "lend a cluster of this computer to programs elsewhere, one at a time",
    _serve,
    (
        CLUSTER_FLAG,
        argument("--host", default="127.0.0.1", help="address to listen at (default: 127.0.0.1)"),
        argument("--port", type=int, default=0, help="port; 0 takes a free one (default: 0)"),
        argument(
            "--credentials",
            type=Path,
            help="file to write, whose owner may use the cluster (default: in the state folder)",
        ),
        argument(
            "--lease_s",
            type=float,
            default=30.0,
            help="a program that is silent for longer loses its cluster (default: 30)",
        ),
    ),
)


def _nodes(given: argparse.Namespace) -> int:
    spec, jobs = machine_of(given), running(JobStore().jobs())
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
    return show(given, group_rows(machine_of(given), running(JobStore().jobs())))


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
    SERVE,
)
