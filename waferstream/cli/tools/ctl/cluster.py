"""Systems, MemoryX groups and sessions: who holds them, who may, and which take no new jobs."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Annotated

from typer import Argument, Option

from appliance.placement.host_memory import free_bytes
from waferstream.cli.frame.commands import command
from waferstream.cli.frame.output import show, tell
from waferstream.cli.tools.ctl.connection import Management
from waferstream.cli.tools.ctl.tables import Row, labels_text
from waferstream.core.errors import ConfigError, did_you_mean
from waferstream.management.client.client import Client, EmbeddedClient
from waferstream.management.model.inventory import DEFAULT_SESSION, NodeState, Session
from waferstream.management.model.operations import (
    ClusterView,
    DeleteSession,
    ListWorkflows,
    PutSession,
    ReadCluster,
    SetNode,
)
from waferstream.management.model.workflow import Workflow

_NAMESPACE = "job-operator"  # of all jobs, as on the vendor's clusters

_Node = Annotated[str, Argument(help="a system or MemoryX group of `ctl get cluster`")]
_Name = Annotated[str, Argument(help="the session")]


@command("ctl get cluster")
def list_systems(at: Management) -> int:
    """List the systems, and who holds them."""
    workflows, view, is_here = _read(at)
    hosts = [_host_row(workflows)] if is_here else []
    holders = _holders(workflows, view)
    named = [
        _row(each.name, f"system ({each.kind})", each.state, holders.get(each.name))
        for each in view.inventory.systems
    ]
    unbounded = [each for each in workflows if each.placement and not each.placement.systems]
    others = [_row(each.submission.machine, "system", "ok", each) for each in unbounded]
    return show([*hosts, *named, *others])


@command("ctl get nodegroups")
def list_groups(at: Management) -> int:
    """List the MemoryX groups, and who holds them."""
    workflows, view, _ = _read(at)
    holders = _holders(workflows, view)
    return show(
        [
            {
                "NAME": group.name,
                "MEMORY": group.memory,
                "STATE": group.state,
                "NAMESPACE": _NAMESPACE,
                "JOBID": _job_id(holders.get(group.name)),
            }
            for group in view.inventory.groups
        ]
    )


def _read(at: Management) -> tuple[Sequence[Workflow], ClusterView, bool]:
    """Return unfinished workflows, what there is, and whether this host is all of it."""
    with at.client() as client:
        view = client.do(ListWorkflows()), client.do(ReadCluster())
        return *view, isinstance(client, EmbeddedClient)


def _holders(workflows: Sequence[Workflow], view: ClusterView) -> dict[str, Workflow]:
    """Return the unfinished workflows that hold systems and groups, by the names of these."""
    by_name = {each.name: each for each in workflows}
    return {node: by_name[name] for node, name in view.holders.items() if name in by_name}


def _host_row(workflows: Sequence[Workflow]) -> Row:
    """Return the row of this host, which has all roles of its workflows but the systems."""
    name = socket.gethostname()
    processes = [(each, each.submission.process) for each in workflows]
    own = [each for each, process in processes if process is not None and process.host == name]
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return _row(name, "management,memoryx,swarmx,worker", "ok", None) | {
        "CPU": f"{os.getloadavg()[0] / (os.cpu_count() or 1):.0%}",
        "MEM": f"{1 - free_bytes() / memory:.0%}",
        "IN-USE": "yes" if own else "no",
        "JOBIDS": ",".join(map(_job_id, own)),
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


@command("ctl get sessions")
def list_sessions(at: Management) -> int:
    """List the sessions and their use, and what no session sets aside."""
    workflows, view, _ = _read(at)
    inventory, sessions = view.inventory, view.sessions
    rest = Session(
        name=DEFAULT_SESSION,
        systems=max(0, len(inventory.systems) - sum(each.systems for each in sessions)),
        groups=max(0, len(inventory.groups) - sum(each.groups for each in sessions)),
        users=("*",),
    )
    return show([_session_row(each, workflows) for each in (rest, *sessions)])


def _session_row(session: Session, workflows: Sequence[Workflow]) -> Row:
    own = [each for each in workflows if each.submission.session == session.name]
    held = [each.placement for each in own if each.placement is not None]
    return {
        "NAME": session.name,
        "SYSTEMS": f"{session.systems}",
        "IN-USE": f"{sum(len(each.systems) for each in held)}",
        "NODEGROUPS": f"{session.groups}",
        "RUNNING": f"{len(held)}",
        "WAITING": f"{len(own) - len(held)}",
        "USERS": ",".join(session.users),
    }


@dataclass(frozen=True)
class Size:
    """Flags that say what a session has."""

    systems: Annotated[int | None, Option(help="CS systems that it has")] = None
    groups: Annotated[int | None, Option(help="MemoryX groups that it has (default: 1)")] = None
    users: Annotated[list[str] | None, Option(help="users and groups of users who may use it")] = (
        None
    )

    def put(self, client: Client, before: Session, done: str) -> int:
        """Put a session with what was typed of it; return the exit code."""
        known = {key: value for key, value in asdict(self).items() if value is not None}
        session = Session.model_validate(before.model_dump() | known)
        client.do(PutSession(session=session))
        return tell(f"session/{session.name} was {done}", **session.model_dump(mode="json"))


@command("ctl session create", "lab --systems 2")
def create(name: _Name, size: Size, at: Management) -> int:
    """Set systems aside for some users."""
    with at.client() as client:
        if name in _sessions(client):
            raise ConfigError(
                "a new session must have a new name",
                code="name-taken",
                value=name,
                remedy="waferstream ctl session resize changes it",
            )
        return size.put(client, Session(name=name, systems=0), "created")


@command("ctl session resize", "lab --systems 3")
def resize(name: _Name, size: Size, at: Management) -> int:
    """Change a session while its jobs run."""
    with at.client() as client:
        sessions = _sessions(client)
        if name not in sessions:
            raise ConfigError(
                "the session must exist",
                code="unknown-session",
                value=name,
                remedy=did_you_mean(name, sessions) or "waferstream ctl get sessions",
            )
        return size.put(client, sessions[name], "resized")


def _sessions(client: Client) -> dict[str, Session]:
    return {each.name: each for each in client.do(ReadCluster()).sessions}


@command("ctl session delete", "lab")
def delete(name: _Name, at: Management) -> int:
    """Give back what a session has; its running jobs end as they are."""
    with at.client() as client:
        client.do(DeleteSession(name=name))
    return tell(f"session/{name} was deleted", name=name)
