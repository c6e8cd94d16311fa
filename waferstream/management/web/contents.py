"""The contents of each page: what is asked of the management, and made of the answers."""

from __future__ import annotations

import time
from typing import Any

from waferstream.core.errors import RequestRefused
from waferstream.management.model import operations as ask
from waferstream.management.model.job import priority_text
from waferstream.management.model.telemetry import Telemetry
from waferstream.management.model.workflow import Stage, Workflow
from waferstream.management.web.asking import Asking
from waferstream.management.web.gantt import colors_of, gantt
from waferstream.management.web.job import points, shares
from waferstream.management.web.roles import picture

MOST_LISTED = 100
"""Rows of each table; ``waferstream ctl`` lists all."""

PICTURES = ("wafer.png", "loss.png")
"""Pictures that a run writes into its folder, as far as its page shows them."""


_WAITING = (Stage.WAITING, Stage.COMPILING)


async def queue(asking: Asking) -> dict[str, Any]:
    """Return what runs, what waits and why, what has ended, and the chart of all."""
    workflows = await asking(ask.ListWorkflows(all_states=True, limit=10 * MOST_LISTED))
    waits = await asking(ask.ListExplanations())
    view = await asking(ask.ReadCluster())
    systems = [system.name for system in view.inventory.systems]
    waiting = {each.name: each for each in workflows if each.stage in _WAITING}
    waits = sorted((w for w in waits if w.workflow in waiting), key=lambda wait: wait.place)
    running = [each for each in workflows if each.stage in (Stage.RUNNING, Stage.ENDING)]
    ended = [each for each in workflows if each.stage is Stage.ENDED]
    ended.sort(key=lambda workflow: -(workflow.ended_s or 0.0))
    colors = colors_of(workflows)
    return {
        "chart": gantt(systems, workflows, waits[:20], time.time()),
        "colors": colors,
        "running": [_row(workflow) for workflow in running[:MOST_LISTED]],
        "waiting": [(_row(waiting[w.workflow]), w) for w in waits[:MOST_LISTED]],
        "ended": [_row(workflow) for workflow in ended[:20]],
        "num_waiting": len(waiting),
        "now_s": time.time(),
    }


async def job(asking: Asking, name: str) -> dict[str, Any]:
    """Return all of a workflow that changes while its page is open."""
    workflow = await asking(ask.ReadWorkflow(name=name))
    numbers = await asking(ask.ReadNumbers())
    told = numbers.workflows.get(workflow.name, Telemetry())
    files = {entry.path.rsplit("/", 1)[-1]: entry.path for entry in await _files(asking, workflow)}
    return {
        **_row(workflow),
        "explanation": await asking(ask.Explain(name=workflow.name)),
        "shares": shares(told),
        "picture": picture(told),
        "watts": sum(sample.value for sample in told.of("power_watts")),
        "joules": sum(sample.value for sample in told.of("energy_joules_total")),
        "pictures": [files[each] for each in PICTURES if each in files],
        "now_s": time.time(),
    }


async def curves(asking: Asking, name: str) -> dict[str, Any]:
    """Return the curves of a workflow so far, and the event with which they end."""
    events = await asking.events(name)
    return {"points": points(events), "after": events[-1].number if events else 0}


async def cluster(asking: Asking) -> dict[str, Any]:
    """Return systems, groups and sessions."""
    workflows = await asking(ask.ListWorkflows(all_states=True, limit=10 * MOST_LISTED))
    return {"view": await asking(ask.ReadCluster()), "colors": colors_of(workflows)}


async def _files(asking: Asking, workflow: Workflow) -> list[ask.FileEntry]:
    """Return the files of a run; none for those who must not see them."""
    try:
        return await asking(ask.ListFiles(name=workflow.name))
    except RequestRefused:
        return []


def _row(workflow: Workflow) -> dict[str, Any]:
    """Return a workflow for tables, with what follows from it."""
    progress = workflow.progress
    percent = 100 * progress.step / progress.total_steps if progress and progress.total_steps else 0
    return {
        "workflow": workflow,
        "priority": priority_text(workflow.submission.priority),
        "percent": percent,
    }
