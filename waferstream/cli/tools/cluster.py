"""``waferstream cluster``: a plan of hosts, and a server that lends a cluster."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Option

from appliance.remote.access import access_path
from appliance.spec import ClusterSpec
from waferstream.cli.frame.commands import command
from waferstream.cli.frame.options import Cluster, machine_of, port_flag
from waferstream.cli.frame.output import show, tell
from waferstream.config.phases import load_params
from waferstream.core.optimizer import OptimizerSpec
from waferstream.core.units import format_bytes
from waferstream.management.model.inventory import MOST_SYSTEMS

if TYPE_CHECKING:
    from appliance.elaboration.host_need import HostNeed
    from appliance.placement.placer import Host, Placement, Placer
    from waferstream.machine.sram import Page


_MOST_HOSTS = 10_000  # several for each of the systems that a cluster may have

Row = dict[str, Any]
"""A row of a table, by column."""
Names = Mapping[str, Sequence[str]]
"""Names of roles, by the address of their host."""


@command("cluster plan", "--num_csx 4 --hosts 3x16x256")
def plan(
    cluster: Cluster = None,
    num_csx: Annotated[int, Option(min=1, max=MOST_SYSTEMS, help="CS systems")] = 1,
    params: Annotated[
        Path | None, Option(help="training whose need of memory is shown for each host")
    ] = None,
    hosts: Annotated[
        str | None,
        Option(
            help="simulated hosts with CPUs and, if given, GiB of memory each, such as 3x4 or "
            "3x4x256 (default: those of Ray)"
        ),
    ] = None,
) -> int:
    """Show which role would run on which host."""
    spec = machine_of(cluster)
    placement = _placer(spec, None if hosts is None else _hosts(hosts)).place(num_csx)
    workers = min(num_csx, spec.runtime.input_workers)
    num_servers = spec.machine.memoryx.weight_servers
    needs, pages = ((), ()) if params is None else _needs(params, spec, placement)
    activations = spec.runtime.activation_servers
    if activations == "auto":
        activations = num_csx if pages else 0
    rows = _rows(placement, placement.roles(num_servers, workers, activations), needs)
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


def _rows(placement: Placement, table: Names, needs: Sequence[HostNeed]) -> list[Row]:
    """Return a row for each host that has roles, with their names by kind, and what they need."""
    hosts = {host.address: host for host in placement.hosts}
    needed = dict(zip(hosts, needs, strict=False))
    kinds = {"COORDINATOR": "crd", "MEMORYX": "wgt", "SWARMX": "br", "CSX": "csx", "WORKERS": "wrk"}
    if any(name.startswith("act-") for names in table.values() for name in names):
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
    row = dict.fromkeys(("NEEDS", "LOADING", "FREE", "FITS"), "")
    if need is not None:
        row["NEEDS"] = format_bytes(sum(need.training.values()))
        row["LOADING"] = format_bytes(need.loading)
    if free is not None:
        row["FREE"] = format_bytes(free)
    if need is not None and free is not None:
        row["FITS"] = "yes" if need.total <= free else "no"
    return row


def _placer(spec: ClusterSpec, hosts: Sequence[Host] | None) -> Placer:
    """Return the placer of roles on simulated hosts, or on those of the Ray cluster."""
    from appliance.placement.placer import Placer  # noqa: PLC0415  (torch)

    runtime, fan_out = spec.runtime, spec.machine.swarmx.fan_out
    if hosts is not None:
        return Placer(tuple(hosts), fan_out, runtime.placement, runtime.server_placement)
    from appliance.ray.hosts.survey import Survey  # noqa: PLC0415  (takes half a second)

    with closing(Survey(runtime)) as found:
        return found.placer(fan_out)


def _hosts(text: str) -> list[Host]:
    """Parse ``3x4``: three hosts of four CPUs; ``3x4x256``: with 256 GiB of memory each."""
    parts = text.split("x")
    if len(parts) not in (2, 3) or not all(part.isdecimal() for part in parts):
        raise typer.BadParameter(
            f"{text!r} must be HOSTSxCPUS or HOSTSxCPUSxGIB, such as 3x4 or 3x4x256",
            param_hint="--hosts",
        )
    count, cpus, *gib = map(int, parts)
    if not 1 <= count <= _MOST_HOSTS:
        raise typer.BadParameter(
            f"{text!r} must have 1 to {_MOST_HOSTS:,} hosts", param_hint="--hosts"
        )
    from appliance.placement.placer import Host  # noqa: PLC0415  (torch)

    free = gib[0] << 30 if gib else None
    return [Host(str(i), f"host-{i}", cpus, cpus, free_bytes=free) for i in range(count)]


@command("cluster serve", "--port 9100 --once")
def serve(
    cluster: Cluster = None,
    host: Annotated[str, Option(help="address to listen at")] = "127.0.0.1",
    port: Annotated[int, port_flag("port; 0 takes a free one")] = 0,
    credentials: Annotated[
        Path | None,
        Option(
            help="file to write, whose owner may use the cluster (default: in the state folder)"
        ),
    ] = None,
    once: Annotated[bool, Option(help="end when one program has used it")] = False,
    lease_s: Annotated[
        float, Option(help="a program that is silent for longer loses its cluster")
    ] = 30.0,
) -> int:
    """Lend a cluster of this computer to programs elsewhere, one at a time, until a signal."""
    from appliance.remote.host import ClusterHost  # noqa: PLC0415  (torch)
    from appliance.remote.server import serving  # noqa: PLC0415  (gRPC)

    lent = ClusterHost(machine_of(cluster), lease_s)
    with serving(lent, f"{host}:{port}", lease_s) as access:
        path = credentials or access_path(access.address)
        access.write(path)
        try:
            tell(f"{access.address}  credentials: {path}", ADDRESS=access.address, PATH=path)
            sys.stdout.flush()
            lent.serve(lambda: once and lent.is_done)
        finally:
            path.unlink(missing_ok=True)
    return 0
