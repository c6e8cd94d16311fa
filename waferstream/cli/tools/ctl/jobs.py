"""Jobs: listed, shown, explained, cancelled, labelled, and put before others."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from typer import Argument, Option

from waferstream.cli.frame.commands import command
from waferstream.cli.frame.output import ask_for_no_pager, print_rows, prints_json, show, tell
from waferstream.cli.tools.ctl.connection import Job, Management, names_of_jobs
from waferstream.cli.tools.ctl.tables import Row, expected_start, job_rows
from waferstream.core.config import dump_yaml
from waferstream.core.errors import ConfigError
from waferstream.host.processes import started_ticks
from waferstream.management.client.client import Client
from waferstream.management.model.job import PRIORITIES
from waferstream.management.model.operations import (
    Cancel,
    Explain,
    Explanation,
    Label,
    ListExplanations,
    ListWorkflows,
    ReadVersion,
    ReadWorkflow,
    SetPriority,
)
from waferstream.management.model.workflow import Process, Workflow

_LOOK_S = 2.0  # between two looks at a list that is watched
_CLEAR = "\x1b[H\x1b[2J"  # the screen of a terminal


@command("ctl get jobs", "--all-states --label team=a")
def list_jobs(
    *,
    all_states: Annotated[
        bool, Option("-a", "--all-states", help="also those of the past week")
    ] = False,
    label: Annotated[str | None, Option("-l", "--label", help="key=value,...")] = None,
    user: Annotated[str | None, Option("-u", "--user", help="those of one user")] = None,
    watch: Annotated[
        bool, Option("-w", "--watch", help="show the list again when it changes")
    ] = False,
    at: Management,
) -> int:
    """List unfinished jobs by priority and age."""
    try:
        labels = {} if label is None else _labels(label)
    except ConfigError as error:
        raise typer.BadParameter(error.what, param_hint="--label") from error
    asked = ListWorkflows(all_states=all_states, labels=labels, user=user)
    with at.client() as client:
        return _watch(client, asked) if watch else show(_rows(client, asked))


def _rows(client: Client, asked: ListWorkflows) -> list[Row]:
    workflows = client.do(asked)
    expected = {each.workflow: each for each in client.do(ListExplanations())}
    pages = client.do(ReadVersion()).pages
    return job_rows(workflows, expected, time.time(), asked.all_states, pages)


def _watch(client: Client, asked: ListWorkflows) -> int:
    """Show the list whenever it changes, until the user interrupts it."""
    shown: list[Row] | None = None
    ask_for_no_pager(True)
    while True:
        rows = _rows(client, asked)
        told = [{**row, "AGE": "", "DURATION": ""} for row in rows]
        if told != shown:
            if sys.stdout.isatty():
                print(_CLEAR, end="")
            shown = told
            show(rows)
            sys.stdout.flush()
        time.sleep(_LOOK_S)


@command("ctl get job", "wsjob-1")
def show_job(
    *,
    name: Job,
    output: Annotated[
        Literal["table", "yaml", "json"], Option("-o", "--output", help="form")
    ] = "table",
    at: Management,
) -> int:
    """Show a job with its workflow."""
    with at.client() as client:
        workflow = client.do(ReadWorkflow(name=name))
        if output == "table" and not prints_json():
            pages = client.do(ReadVersion()).pages
            rows = job_rows([workflow], {}, time.time(), all_states=True, dashboard=pages)
            return show([row for row in rows if name in row.values()])
    found = _document(workflow, name)
    print(json.dumps(found, indent=2) if output != "yaml" else dump_yaml(found).rstrip())
    return 0


def _document(workflow: Workflow, name: str) -> dict[str, Any]:
    """Return all that is known of a job and of its workflow, or of a workflow and its jobs."""
    found = workflow.model_dump(mode="json")
    job = next((each for each in found["jobs"] if each["name"] == name), None)
    return found if job is None else {**job, "workflow": found}


@command("ctl explain", "wsjob-1")
def explain(name: Job, at: Management) -> int:
    """Say why a job waits, when it starts, and what would start it sooner."""
    with at.client() as client:
        found = client.do(Explain(name=name))
    return tell("\n".join(_explanation_lines(found)), **found.model_dump(mode="json"))


def _explanation_lines(found: Explanation) -> list[str]:
    """Return an explanation in words."""
    lines = [f"{found.workflow}: {found.reason or 'it does not wait'}"]
    if found.place:
        lines.append(f"place in the queue: {found.place}")
    if start := expected_start(found):
        lines.append(f"expected start: {start}")
    return lines + [f"sooner: {each}" for each in found.sooner]


@command("ctl cancel", "wsjob-1 wsjob-2")
def cancel(
    names: Annotated[list[str], Argument(help="jobs or workflows", autocompletion=names_of_jobs)],
    at: Management,
) -> int:
    """End jobs and their programs; one on this host is interrupted, which ends its cluster."""
    names = _without_kind(names)
    with at.client() as client:
        for name in names:
            workflow = client.do(Cancel(name=name))
            if workflow.submission.process is not None:
                _interrupt(workflow.submission.process)
            if not prints_json():
                print("Job canceled successfully")
    return print_rows([{"name": name} for name in names]) if prints_json() else 0


def _interrupt(process: Process) -> None:
    """Interrupt a process; one of another host sees itself that it is cancelled."""
    is_here = process.host == socket.gethostname()
    if is_here and started_ticks(process.pid) == process.started_ticks:
        with suppress(ProcessLookupError, FileNotFoundError):
            os.kill(process.pid, _interrupting_signal(process.pid))


def _interrupting_signal(pid: int) -> signal.Signals:
    """Return SIGINT, or SIGTERM for a process that ignores it, as in the background of a shell."""
    ignored = re.search(r"^SigIgn:\s*(\w+)", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    mask = int(ignored[1], 16) if ignored else 0
    return signal.SIGTERM if mask >> (signal.SIGINT - 1) & 1 else signal.SIGINT


@command("ctl label", "wsjob-1 team=a")
def label(
    words: Annotated[
        list[str],
        Argument(
            help="the job; then key=value adds one, key- removes one", autocompletion=names_of_jobs
        ),
    ],
    at: Management,
) -> int:
    """Add and remove labels."""
    name, *words = _without_kind(words)
    labels: dict[str, str | None] = {}
    for word in words:
        if word.endswith("-") and "=" not in word:
            labels[word[:-1]] = None
        else:
            labels.update(_labels(word))
    if not labels:
        raise ConfigError("labels must be given", code="label-form", where=name)
    with at.client() as client:
        kept = client.do(Label(name=name, labels=labels)).submission.labels
    return tell(f"job/{name} was patched", name=name, labels=dict(kept))


def _without_kind(words: list[str]) -> list[str]:
    """Return words without the ``job`` that the vendor's commands have before a name."""
    return words[1:] if words[0] == "job" and len(words) > 1 else words


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


@command("ctl job set-priority", "wsjob-1 p1")
def set_priority(
    name: Job, priority: Annotated[Literal["p0", "p1", "p2", "p3"], Argument()], at: Management
) -> int:
    """Change the priority of a job, its workflow, and its later jobs."""
    with at.client() as client:
        client.do(SetPriority(name=name, priority=PRIORITIES[priority]))
    text = f"successfully updated {name} job priority to {priority}"
    return tell(text, name=name, priority=priority)
