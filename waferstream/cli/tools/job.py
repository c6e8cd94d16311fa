"""``waferstream job``: list, get, cancel, label, set-priority, log-export.

Columns and messages are those of the vendor's ``csctl`` (ALCF user guides,
job-queuing-and-submission).
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import signal
import socket
import time
from contextlib import suppress
from pathlib import Path

from appliance.jobs.job import PRIORITIES, ClusterJob, Phase, priority_text
from appliance.jobs.store import JobStore
from waferstream.cli.tools.command import TABLE_FLAGS, Command, argument, show, tell, tell_paths
from waferstream.core.config import dump_yaml
from waferstream.core.errors import ConfigError


def _list(given: argparse.Namespace) -> int:
    jobs = [
        job
        for job in JobStore().jobs()
        if (given.all_states or not job.phase.is_final)
        and given.label.items() <= job.request.labels.items()
    ]
    jobs.sort(key=lambda job: (job.request.priority, job.created_s))
    return show(given, [_row(job, time.time()) for job in jobs])


def _row(job: ClusterJob, now: float) -> dict[str, str]:
    """Return the columns of a job in the list."""
    start = job.time_of(Phase.RUNNING)
    end = job.time_of(Phase.SUCCEEDED, Phase.FAILED, Phase.CANCELLED)
    return {
        "NAME": job.name,
        "TYPE": job.kind,
        "PRIORITY": priority_text(job.request.priority),
        "AGE": _duration(now - job.created_s),
        "DURATION": "" if start is None else _duration((end or now) - start),
        "PHASE": job.phase.value,
        "SYSTEMS": job.request.machine if job.kind == "execute" else "",
        "USER": job.owner.user,
        "LABELS": ",".join(f"{key}={value}" for key, value in job.request.labels.items()),
        "WORKFLOW": job.workflow,
        "REASON": job.reason,
    }


def _duration(seconds: float) -> str:
    """Return a duration in its two largest units, such as ``3m20s``."""
    minutes, second = divmod(int(seconds), 60)
    hours, minute = divmod(minutes, 60)
    days, hour = divmod(hours, 24)
    units = [f"{days}d", f"{hour}h", f"{minute}m", f"{second}s"]
    first = next((i for i, n in enumerate((days, hour, minute)) if n), 3)
    return "".join(units[first : first + 2])


def _get(given: argparse.Namespace) -> int:
    job = JobStore().find(given.name)
    if given.json or given.output == "json":
        print(job.model_dump_json(indent=2))
    elif given.output == "yaml":
        print(dump_yaml(job.model_dump(mode="json")), end="")
    else:
        show(argparse.Namespace(json=False, no_pager=True), [_row(job, time.time())])
    return 0


def _cancel(given: argparse.Namespace) -> int:
    """Mark the job, then interrupt its program, which ends its cluster."""
    cancelled = {"is_cancelled": True}
    job = JobStore().change(given.name, lambda job: _unfinished(job).model_copy(update=cancelled))
    if job.owner.host == socket.gethostname():  # elsewhere the run sees the mark itself
        with suppress(ProcessLookupError, FileNotFoundError):
            os.kill(job.owner.pid, _interrupting_signal(job.owner.pid))
    return tell(given, "Job canceled successfully", name=job.name)


def _interrupting_signal(pid: int) -> signal.Signals:
    """Return SIGINT, or SIGTERM for a process that ignores it, as in the background of a shell."""
    ignored = re.search(r"^SigIgn:\s*(\w+)", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    mask = int(ignored[1], 16) if ignored else 0
    return signal.SIGTERM if mask >> (signal.SIGINT - 1) & 1 else signal.SIGINT


def _unfinished(job: ClusterJob) -> ClusterJob:
    if job.phase.is_final:
        raise ConfigError(
            "the job must not have ended",
            code="job-has-ended",
            where=job.name,
            value=job.phase.value,
        )
    return job


def _label(given: argparse.Namespace) -> int:
    def labelled(job: ClusterJob) -> ClusterJob:
        labels = dict(job.request.labels)
        for word in given.labels:
            if word.endswith("-") and "=" not in word:
                labels.pop(word[:-1], None)
            else:
                labels.update(_labels(word))
        return job.with_request(labels=labels)

    changed = JobStore().change(given.name, labelled)
    labels = changed.request.labels
    return tell(given, f"job/{given.name} was patched", name=given.name, labels=labels)


def _labels(text: str) -> dict[str, str]:
    """Return the labels of ``key=value,key=value``."""
    labels = {}
    for word in text.split(","):
        key, equals, value = word.partition("=")
        if not (key and equals):
            raise ConfigError(
                "a label must be key=value, or key- to remove it", code="label-form", value=word
            )
        labels[key] = value
    return labels


def _set_priority(given: argparse.Namespace) -> int:
    """Change the priority of all unfinished jobs of the workflow, and so of its later ones."""
    store, value = JobStore(), PRIORITIES[given.priority]
    workflow = _unfinished(store.find(given.name)).workflow
    for job in store.jobs():
        if job.workflow == workflow and not job.phase.is_final:
            store.change(job.name, lambda job: job.with_request(priority=value))
    text = f"successfully updated {given.name} job priority to {given.priority}"
    return tell(given, text, name=given.name, priority=given.priority)


def _log_export(given: argparse.Namespace) -> int:
    """Pack the folder of the job and print the path of the archive."""
    job = JobStore().find(given.name)
    given.out.mkdir(parents=True, exist_ok=True)
    archive = shutil.make_archive(str(given.out / job.name), "gztar", job.log_path)
    return tell_paths(given, Path(archive))


def _label_filter(text: str) -> dict[str, str]:
    try:
        return _labels(text)
    except ConfigError as error:
        raise argparse.ArgumentTypeError(error.what) from error


_NAME = argument("name", help="the job: wsjob-...")

COMMANDS = (
    Command(
        "list",
        "list unfinished jobs by priority and age",
        _list,
        (
            argument("-a", "--all-states", action="store_true", help="also those of the past week"),
            argument("-l", "--label", type=_label_filter, default={}, help="key=value,..."),
            *TABLE_FLAGS,
        ),
    ),
    Command(
        "get",
        "show a job",
        _get,
        (_NAME, argument("-o", "--output", choices=("table", "yaml", "json"), default="table")),
    ),
    Command("cancel", "end a job and its program", _cancel, (_NAME,)),
    Command(
        "label",
        "add and remove labels",
        _label,
        (_NAME, argument("labels", nargs="+", help="key=value adds one, key- removes one")),
    ),
    Command(
        "set-priority",
        "change the priority of the workflow of a job",
        _set_priority,
        (_NAME, argument("priority", choices=tuple(PRIORITIES))),
    ),
    Command(
        "log-export",
        "pack the logs of a job",
        _log_export,
        (_NAME, argument("-o", "--out", type=Path, default=Path(), help="folder (default: here)")),
    ),
)
