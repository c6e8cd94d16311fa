"""Rows of jobs, with the columns of the vendor's list and those of the queue."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import groupby

from waferstream.management.model.job import Job, Phase, priority_text
from waferstream.management.model.operations import Explanation
from waferstream.management.model.workflow import Stage, Workflow

Row = dict[str, str]
"""The cells of a row by column."""

_FINAL = tuple(phase for phase in Phase if phase.is_final)


def job_rows(
    workflows: Sequence[Workflow],
    expected: Mapping[str, Explanation],
    now_s: float,
    all_states: bool = False,
    dashboard: str = "",
) -> list[Row]:
    """Return a row for each job, and for each workflow that waits for its next one.

    Args:
        workflows: In the order of the rows.
        expected: What is known of the start of those that wait, by name.
        now_s: Seconds since 1970.
        all_states: Whether ended jobs have rows, too.
        dashboard: Where the pages of the management are.
    """
    return [
        _row(each, job, expected.get(each.name), now_s, dashboard)
        for each in workflows
        for job in _jobs(each, all_states)
    ]


def _jobs(workflow: Workflow, all_states: bool) -> list[Job | None]:
    """Return the jobs that have rows; None is the one that the workflow waits for."""
    left = [job for job in workflow.jobs if not job.phase.is_final]
    shown = list(workflow.jobs) if all_states else left
    waits = not left and workflow.stage is not Stage.ENDED and not workflow.is_embedded
    return [*shown, None] if waits or (all_states and not workflow.jobs) else [*shown]


def _row(
    workflow: Workflow, job: Job | None, expected: Explanation | None, now_s: float, dashboard: str
) -> Row:
    """Return the columns of a job; without one, those of the job that its workflow waits for."""
    submission = workflow.submission
    is_compile = job is not None and job.kind == "compile"
    phase = _phase(workflow, job)
    return {
        "SESSION": submission.session,
        "NAME": workflow.name if job is None else job.name,
        "TYPE": "execute" if job is None else job.kind,
        "PRIORITY": priority_text(submission.priority),
        "AGE": duration(now_s - (workflow.submitted_s if job is None else job.created_s)),
        "DURATION": "" if job is None else _duration(job, now_s),
        "PHASE": phase.value,
        "SYSTEMS": "" if is_compile else _systems(workflow),
        "USER": workflow.user,
        "LABELS": labels_text(submission.labels),
        "WORKFLOW": workflow.name,
        "DASHBOARD": f"{dashboard}/jobs/{workflow.name}" if dashboard else "",
        "REASON": _reason(workflow, job),
        "START": expected_start(expected) if phase is Phase.QUEUED and expected else "",
    }


def _phase(workflow: Workflow, job: Job | None) -> Phase:
    if job is not None:
        return job.phase
    if workflow.result is not None:
        return workflow.result
    return Phase.QUEUED if workflow.placement is None else Phase.SCHEDULED


def _reason(workflow: Workflow, job: Job | None) -> str:
    """Return why a job waits or has failed."""
    if job is None or (job.phase is Phase.QUEUED and workflow.reason):
        return workflow.reason
    return job.message


def _duration(job: Job, now_s: float) -> str:
    start_s, end_s = job.time_of(Phase.RUNNING), job.time_of(*_FINAL)
    return "" if start_s is None else duration((end_s or now_s) - start_s)


def _systems(workflow: Workflow) -> str:
    placement = workflow.last_placement
    held = placement.systems if placement else ()
    return folded(held) or workflow.submission.machine or f"{workflow.num_csx} asked for"


def folded(names: Sequence[str]) -> str:
    """Return names in order, with numbers in ranges: ``system-[0-3,8]``, as Slurm does."""
    parts = [(each.rstrip("0123456789"), each) for each in names]
    parts.sort(key=lambda part: (part[0], len(part[1]), part[1]))
    texts = []
    for stem, found in groupby(parts, key=lambda part: part[0]):
        numbers = [name.removeprefix(stem) for _, name in found]
        texts.append(stem + (numbers[0] if len(numbers) == 1 else f"[{_ranges(numbers)}]"))
    return ",".join(texts)


def _ranges(numbers: Sequence[str]) -> str:
    """Return numbers with runs joined: ``0-3,8``."""
    runs = groupby(enumerate(numbers), key=lambda each: int(each[1]) - each[0])
    bounds = [[number for _, number in run] for _, run in runs]
    return ",".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else run[0] for run in bounds)


def labels_text(labels: Mapping[str, str]) -> str:
    """Return labels as the lists show them."""
    return ",".join(f"{key}={value}" for key, value in labels.items())


def duration(seconds: float) -> str:
    """Return a duration in its two largest units, such as ``3m20s``."""
    minutes, second = divmod(int(max(0.0, seconds)), 60)
    hours, minute = divmod(minutes, 60)
    days, hour = divmod(hours, 24)
    units = [f"{days}d", f"{hour}h", f"{minute}m", f"{second}s"]
    first = next((i for i, n in enumerate((days, hour, minute)) if n), 3)
    return "".join(units[first : first + 2])


def expected_start(expected: Explanation) -> str:
    """Return when a workflow starts, such as ``14:05:00 (14:03:10 to 14:09:00)``."""
    if expected.start_s is None:
        return ""
    start = _moment(expected.start_s)
    if expected.earliest_s is None or expected.latest_s is None:
        return start
    return f"{start} ({_moment(expected.earliest_s)} to {_moment(expected.latest_s)})"


def _moment(time_s: float) -> str:
    """Return a time of this day without its date."""
    moment = datetime.fromtimestamp(time_s).astimezone()
    is_today = moment.date() == datetime.now().astimezone().date()
    return moment.strftime("%H:%M:%S" if is_today else "%Y-%m-%d %H:%M")
