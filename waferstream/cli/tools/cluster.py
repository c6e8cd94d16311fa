"""``waferstream cluster``: a plan of hosts, and a server that lends a cluster."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from appliance.placement.placer import Host, Placement, Placer
from appliance.remote.access import access_path
from appliance.spec import ClusterSpec, load_cluster
from waferstream.cli.frame.output import show, tell
from waferstream.cli.tools.command import Command, argument
from waferstream.config.phases import load_params
from waferstream.core.errors import ConfigError
from waferstream.core.optimizer import OptimizerSpec
from waferstream.core.units import format_bytes
from waferstream.management.model.inventory import MOST_SYSTEMS

if TYPE_CHECKING:
    from appliance.elaboration.host_need import HostNeed
    from waferstream.machine.sram import Page


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
    needs, pages = ((), ()) if given.params is None else _needs(given.params, spec, placement)
    activations = spec.runtime.activation_servers
    if activations == "auto":
        activations = given.num_csx if pages else 0
    rows = plan_rows(placement, num_servers, workers, needs, activations)
    code = show(rows)
    if any(row["FITS"] == "no" for row in rows):
        from appliance.elaboration.host_need import remedy_on_hosts  # noqa: PLC0415  (torch)

        remedy = remedy_on_hosts(placement, num_servers, spec.runtime.flash)
        print(f"Some hosts lack memory; remedy: {remedy}", file=sys.stderr)
    return code


def _needs(
    path: Path, spec: ClusterSpec, placement: Placement
) -> tuple[list[HostNeed], Sequence[Page]]:
    """Return the bytes that the training of a params file needs at least on each host, and what of
    its activations the systems have no room for.
    """
    from appliance.elaboration.host_need import needs_of_hosts  # noqa: PLC0415  (torch)
    from memoryx.sparsity.packing import held_bytes, packable  # noqa: PLC0415
    from waferstream.machine.sram import SramPlan  # noqa: PLC0415
    from waferstream.simulation.capturing import captured_studies  # noqa: PLC0415
    from waferstream.simulation.session import labels_of  # noqa: PLC0415

    params = load_params(path)
    (study,) = captured_studies(params, [spec], [placement.num_systems])
    program = study.costed(placement.num_systems).program
    simulator, num_servers = study.simulator, spec.machine.memoryx.weight_servers
    rule = OptimizerSpec(labels_of(params, study).optimizer, (), sparsity=tuple(simulator.sparse))
    sparse = packable(rule) if simulator.sparse else ()
    held = held_bytes(program, simulator.update.state_bytes, sparse)
    pages = SramPlan.of(program, spec.machine).pages
    return needs_of_hosts(program, pages, held, spec.runtime, num_servers, placement), pages


def plan_rows(
    placement: Placement,
    num_servers: int,
    num_workers: int,
    needs: Sequence[HostNeed] = (),
    num_activation_servers: int = 0,
) -> list[Row]:
    """Return a row for each host that has roles, with their names by kind.

    Args:
        placement: Where the roles run.
        num_servers: Weight servers.
        num_workers: Input workers.
        needs: What the roles of each host need at least, if the model is known.
        num_activation_servers: Activation servers; without any, they have no column.
    """
    table = placement.roles(num_servers, num_workers, num_activation_servers)
    hosts = {host.address: host for host in placement.hosts}
    needed = dict(zip(hosts, needs, strict=False))
    kinds = {"COORDINATOR": "crd", "MEMORYX": "wgt", "SWARMX": "br", "CSX": "csx", "WORKERS": "wrk"}
    if num_activation_servers:
        kinds["ACTIVATIONS"] = "act"
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
            tell(f"{access.address}  credentials: {path}", ADDRESS=access.address, PATH=path)
            sys.stdout.flush()
            host.serve(lambda: given.once and host.is_done)
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
        argument("--once", action="store_true", help="end when one program has used it"),
        argument(
            "--lease_s",
            type=float,
            default=30.0,
            help="a program that is silent for longer loses its cluster (default: 30)",
        ),
    ),
)

COMMANDS = (PLAN, SERVE)
