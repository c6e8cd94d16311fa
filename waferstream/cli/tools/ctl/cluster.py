"""Systems and MemoryX groups: who holds them, and which take no new jobs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from typer import Argument

from waferstream.cli.frame.commands import command
from waferstream.cli.frame.output import show, tell
from waferstream.cli.tools.ctl.connection import Management
from waferstream.cli.tools.ctl.host import HostLoad, load_of_this_host
from waferstream.cli.tools.ctl.tables import Row, labels_text
from waferstream.management.client.client import Client, EmbeddedClient
from waferstream.management.model.inventory import NodeState
from waferstream.management.model.operations import (
    ClusterView,
    ListWorkflows,
    ReadCluster,
    SetNode,
)
from waferstream.management.model.workflow import Workflow

_NAMESPACE = "job-operator"  # of all jobs, as on the vendor's clusters


@dataclass(frozen=True)
class Usage:
    """The inventory, and the unfinished workflows that may hold parts of it."""

    view: ClusterView
    workflows: Sequence[Workflow]

    @classmethod
    def of(cls, client: Client) -> Usage:
        """Return what a management has now."""
        workflows = client.do(ListWorkflows())
        return cls(client.do(ReadCluster()), workflows)

    def holder(self, node: str) -> Workflow | None:
        """Return the workflow that holds a system or a group."""
        name = self.view.holders.get(node)
        return next((each for each in self.workflows if each.name == name), None)

    def without_names(self) -> list[Workflow]:
        """Return the workflows that run on systems of their own, since no inventory bounds them."""
        held = [(each, each.placement) for each in self.workflows]
        return [each for each, place in held if place is not None and not place.systems]


def system_rows(usage: Usage) -> list[Row]:
    """Return a row for each system, with the job that holds it."""
    named = [
        _row(each.name, f"system ({each.kind})", each.state, usage.holder(each.name))
        for each in usage.view.inventory.systems
    ]
    others = [_row(each.submission.machine, "system", "ok", each) for each in usage.without_names()]
    return named + others


def group_rows(usage: Usage) -> list[Row]:
    """Return a row for each MemoryX group, of which a running job holds one."""
    return [
        {
            "NAME": group.name,
            "MEMORY": group.memory,
            "STATE": group.state,
            "NAMESPACE": _NAMESPACE,
            "JOBID": _job_id(usage.holder(group.name)),
        }
        for group in usage.view.inventory.groups
    ]


def host_row(load: HostLoad, workflows: Sequence[Workflow]) -> Row:
    """Return the row of a host, which has all roles of its workflows but the systems."""
    processes = [each.submission.process for each in workflows]
    own = [
        workflow
        for workflow, process in zip(workflows, processes, strict=True)
        if process is not None and process.host == load.name
    ]
    row = _row(load.name, "management,memoryx,swarmx,worker", "ok", None)
    jobs = ",".join(map(_job_id, own))
    return row | {
        "CPU": f"{load.cpu:.0%}",
        "MEM": f"{load.memory:.0%}",
        "IN-USE": "yes" if own else "no",
        "JOBIDS": jobs,
    }


def _row(name: str, role: str, state: NodeState, holder: Workflow | None) -> Row:
    return {
        "NAME": name,
        "ROLE": role,
        "CPU": "",
        "MEM": "",
        "IN-USE": "no" if holder is None else "yes",
        "STATE": state,
        "JOBIDS": _job_id(holder),
        "LABELS": "" if holder is None else labels_text(holder.submission.labels),
    }


def _job_id(workflow: Workflow | None) -> str:
    """Return the job with which a workflow runs, or else its own name."""
    if workflow is None:
        return ""
    running = [job.name for job in workflow.jobs if not job.phase.is_final]
    return running[-1] if running else workflow.name


_Node = Annotated[str, Argument(help="a system or MemoryX group of `ctl get cluster`")]


@command("ctl get cluster")
def list_systems(at: Management) -> int:
    """List the systems, and who holds them."""
    with at.client() as client:
        usage = Usage.of(client)
        is_here = isinstance(client, EmbeddedClient)
    hosts = [host_row(load_of_this_host(), usage.workflows)] if is_here else []
    return show([*hosts, *system_rows(usage)])


@command("ctl get nodegroups")
def list_groups(at: Management) -> int:
    """List the MemoryX groups, and who holds them."""
    with at.client() as client:
        return show(group_rows(Usage.of(client)))


@command("ctl node drain", "system-0")
def drain(name: _Node, at: Management) -> int:
    """Let what runs on a node end, and start nothing new there."""
    return _set_node(at, name, "drained")


@command("ctl node taint", "group-0")
def taint(name: _Node, at: Management) -> int:
    """Take a faulty node out of use."""
    return _set_node(at, name, "tainted")


@command("ctl node restore", "system-0")
def restore(name: _Node, at: Management) -> int:
    """Take a node into use again."""
    return _set_node(at, name, "ok")


def _set_node(at: Management, name: str, state: NodeState) -> int:
    with at.client() as client:
        client.do(SetNode(name=name, state=state))
    return tell(f"node/{name} is {state}", name=name, state=state)
