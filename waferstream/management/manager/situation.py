"""Workflows and inventory as the schedule sees them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from math import inf
from typing import TypeVar

from waferstream.management.manager.pace import Pace
from waferstream.management.model.inventory import (
    DEFAULT_SESSION,
    Inventory,
    MemoryXGroup,
    Session,
    System,
)
from waferstream.management.model.job import Phase
from waferstream.management.model.workflow import Stage, Workflow
from waferstream.management.schedule.state import Inventory as Parts
from waferstream.management.schedule.state import Job as Waiting
from waferstream.management.schedule.state import RunTime
from waferstream.management.schedule.state import Session as Part
from waferstream.management.schedule.state import System as PartOfSystem

Node = TypeVar("Node", System, MemoryXGroup)

COMPILE = "/compile"
"""What the schedule calls the compile of a workflow, behind its name."""


def parts_of(
    inventory: Inventory, sessions: Sequence[Session], workflows: Sequence[Workflow]
) -> Parts:
    """Divide the inventory among its sessions; what no session sets aside is the default's.

    A session gets first what its workflows hold, so that another size takes nothing from them.
    """
    holders = {
        name: workflow.submission.session
        for workflow in workflows
        for placement in (workflow.placement, workflow.next_placement)
        if placement is not None
        for name in (*placement.systems, placement.group)
    }
    systems = [each for each in inventory.systems if each.state == "ok"]
    groups = [each for each in inventory.groups if each.state == "ok"]
    parts = []
    for session in sorted(sessions, key=lambda each: each.name):
        own_systems = _taken(systems, session.systems, session.name, holders)
        own_groups = _taken(groups, session.groups, session.name, holders)
        parts.append(_part(session.name, own_systems, own_groups, inventory.compile_slots))
    parts.append(_part(DEFAULT_SESSION, systems, groups, inventory.compile_slots))
    return Parts(tuple(parts))


def _taken(nodes: list[Node], count: int, session: str, holders: dict[str, str]) -> list[Node]:
    """Take nodes for a session out of a list: its own first, then those that nobody holds."""
    own = [node for node in nodes if holders.get(node.name) == session]
    free = [node for node in nodes if node.name not in holders]
    taken = (own + free)[: max(count, len(own))]
    nodes[:] = [node for node in nodes if node not in taken]
    return taken


def _part(
    name: str, systems: Sequence[System], groups: Sequence[MemoryXGroup], compile_slots: int
) -> Part:
    return Part(
        name=name,
        systems=tuple(PartOfSystem(each.name, each.kind) for each in systems),
        groups=tuple(each.name for each in groups),
        compile_slots=compile_slots,
    )


def jobs_of(
    workflows: Sequence[Workflow],
    inventory: Inventory,
    sessions: Sequence[Session],
    pace: Pace,
    now_s: float,
    *,
    launches: bool,
) -> list[Waiting]:
    """Return what the schedule sees of workflows: themselves, and compiles that may help.

    Args:
        workflows: Those that have not ended.
        inventory: All that there is.
        sessions: What is set aside of it; workflows of a deleted one are in the default session.
        pace: How long they take.
        now_s: The time.
        launches: Whether they can be resized, paused and compiled beside others.
    """
    kinds = sorted({each.kind for each in inventory.systems})
    names = {each.name for each in sessions}
    jobs, slots = list[Waiting](), Counter[str]()
    for workflow in workflows:
        if not _wants_systems(workflow):
            continue
        breathes = launches and not workflow.submission.is_service
        job = _job(workflow, kinds, pace, now_s, breathes=breathes)
        if job.session not in names:
            job = replace(job, session=DEFAULT_SESSION)
        jobs.append(job)
        if launches and workflow.stage is Stage.COMPILING:
            jobs.append(_compile_of(job, f"compile-{slots[job.session]}"))
            slots[job.session] += 1
        elif launches and _can_compile(workflow):
            jobs.append(_compile_of(job, None))
    return jobs


def _wants_systems(workflow: Workflow) -> bool:
    """Return whether a workflow holds systems or waits for some."""
    if workflow.placement is not None:
        return bool(workflow.placement.group)
    if workflow.is_embedded:
        return any(job.phase is Phase.QUEUED for job in workflow.jobs)
    return workflow.stage in (Stage.WAITING, Stage.COMPILING)


def _can_compile(workflow: Workflow) -> bool:
    """Return whether a compile would tell how long a workflow takes."""
    is_new = workflow.stage is Stage.WAITING and not workflow.attempt
    trains = workflow.submission.words[:1] not in (("exec",), ("serve",), ("cluster",))
    return is_new and trains and not workflow.is_embedded


def _job(
    workflow: Workflow, kinds: Sequence[str], pace: Pace, now_s: float, *, breathes: bool
) -> Waiting:
    submission = workflow.submission
    placement = workflow.next_placement or workflow.placement
    run_time = pace.run_time(workflow)
    since_s = now_s if workflow.held_since_s is None else workflow.held_since_s
    return Waiting(
        name=workflow.name,
        user=workflow.user,
        submitted_s=workflow.submitted_s,
        run_times=dict.fromkeys([submission.system] if submission.system else kinds, run_time),
        num_csx=submission.num_csx,
        min_num_csx=submission.least_csx,
        session=submission.session,
        priority=submission.priority,
        resize_s=pace.resize_s if breathes and workflow.stage is not Stage.ENDING else inf,
        left=pace.left(workflow),
        waits_since_s=workflow.waits_since_s,
        holds=placement.systems if placement else (),
        group=placement.group if placement else None,
        starts_s=since_s,
        ready_s=since_s,
    )


def _compile_of(job: Waiting, slot: str | None) -> Waiting:
    """Return the compile of a job, which takes a slot and no systems; without one, it waits."""
    seconds = {kind: RunTime(((1, 60.0),), 3.0) for kind in job.run_times}
    return Waiting(
        name=job.name + COMPILE,
        user=job.user,
        submitted_s=job.submitted_s,
        run_times=seconds,
        session=job.session,
        priority=job.priority,
        compiles=True,
        resize_s=inf,
        waits_since_s=job.waits_since_s,
        group=slot,
    )
