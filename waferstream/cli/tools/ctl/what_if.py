"""What if the appliance were another: the scheduler on an emulated clock answers."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Annotated

from typer import Option

from waferstream.cli.frame.commands import command
from waferstream.cli.frame.output import show
from waferstream.cli.tools.ctl.connection import Management
from waferstream.cli.tools.ctl.tables import Row, duration
from waferstream.core.config import load_yaml, validate
from waferstream.core.errors import ConfigError
from waferstream.management.model.inventory import Inventory
from waferstream.management.model.operations import ReadCluster
from waferstream.management.schedule import state
from waferstream.management.schedule.trace import read_trace
from waferstream.management.schedule.what_if import Outcome, fewest_systems, outcome
from waferstream.management.schedule.workload import at_load, workload

_RESIZE_S = 350.0
"""What a resize costs a job: a compile is there, weights are saved and loaded."""


@command("ctl what-if", "--inventory inventory.yaml --trace jobs.swf")
def what_if(
    *,
    inventory: Annotated[Path | None, Option(help="YAML (default: that of the management)")] = None,
    trace: Annotated[
        Path,
        Option(help="jobs: .swf, or .csv with timestamp, duration, num_gpus, cluster; also packed"),
    ],
    jobs: Annotated[int, Option(help="the first so many")] = 10_000,
    load: Annotated[
        float | None, Option(help="compress arrivals to this load (default: as is)")
    ] = None,
    fixed_sizes: Annotated[bool, Option(help="let no job breathe")] = False,
    mean_wait_h: Annotated[
        float | None,
        Option(help="find the fewest systems, of the inventory at most, with no longer mean wait"),
    ] = None,
    at: Management,
) -> int:
    """Say how long the jobs of a trace wait on an inventory, or how many systems they need."""
    found = _inventory(inventory, at)
    systems, groups = len(found.systems), len(found.groups)
    if not (systems and groups):
        raise ConfigError(
            "an inventory must have systems and MemoryX groups",
            code="missing-key",
            where="--inventory",
            remedy="--inventory deploy/inventories/andromeda.yaml",
        )
    read = read_trace(trace, jobs)
    if load is not None:
        read = at_load(read, systems, groups, load)
    kinds = sorted({each.kind for each in found.systems})
    asked = [
        replace(job, run_times=dict.fromkeys(kinds, job.run_times[kinds[0]]))
        for job in workload(
            [replace(job, systems=min(job.systems, systems)) for job in read],
            kind=kinds[0],
            resize_s=inf if fixed_sizes else _RESIZE_S,
        ).jobs
    ]  # which take the same time on each kind of systems
    if mean_wait_h is None:
        return show([_row(outcome(_of_schedule(found), asked))])
    tried = fewest_systems(asked, 3600 * mean_wait_h, systems, groups, kinds[0])
    return show([_row(each) for each in tried])


def _inventory(file: Path | None, at: Management) -> Inventory:
    """Return what a file states, or else what the management has."""
    if file is not None:
        return validate(Inventory, load_yaml(file), str(file))
    with at.client() as client:
        return client.do(ReadCluster()).inventory


def _of_schedule(inventory: Inventory) -> state.Inventory:
    """Return an inventory as one session of the schedule."""
    systems = tuple(state.System(each.name, each.kind) for each in inventory.systems)
    groups = tuple(each.name for each in inventory.groups)
    return state.Inventory((state.Session("", systems, groups),))


def _row(found: Outcome) -> Row:
    return {
        "SYSTEMS": f"{found.systems}",
        "NODEGROUPS": f"{found.groups}",
        "MEAN WAIT": duration(found.mean_wait_s),
        "90 % WAIT": duration(found.wait_of_90_percent_s),
        "LONGEST WAIT": duration(found.longest_wait_s),
        "TURNAROUND": duration(found.mean_turnaround_s),
        "UTILISATION": f"{found.utilisation:.0%}",
    }
