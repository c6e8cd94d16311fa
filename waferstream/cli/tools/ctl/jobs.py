"""Jobs: listed, shown, explained, cancelled, labelled, and put before others."""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import socket
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from waferstream.cli.frame.output import ask_for_no_pager, print_rows, prints_json, show, tell
from waferstream.cli.tools.command import Command, argument
from waferstream.cli.tools.ctl.connection import MANAGEMENT_FLAGS, management, names_of_jobs
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


def _list(given: argparse.Namespace) -> int:
    with management(given) as client:
        if not given.watch:
            return show(_rows(client, given))
        return _watch(client, given)


def _rows(client: Client, given: argparse.Namespace) -> list[Row]:
    asked = ListWorkflows(all_states=given.all_states, labels=given.label, user=given.user)
    workflows = client.do(asked)
    expected = {each.workflow: each for each in client.do(ListExplanations())}
    pages = client.do(ReadVersion()).pages
    return job_rows(workflows, expected, time.time(), given.all_states, pages)


def _watch(client: Client, given: argparse.Namespace) -> int:
    """Show the list whenever it changes, until the user interrupts it."""
    shown: list[Row] | None = None
    ask_for_no_pager(True)
    while True:
        rows = _rows(client, given)
        told = [{**row, "AGE": "", "DURATION": ""} for row in rows]
        if told != shown:
            if sys.stdout.isatty():
                print(_CLEAR, end="")
            shown = told
            show(rows)
            sys.stdout.flush()
        time.sleep(_LOOK_S)


def _get(given: argparse.Namespace) -> int:
    with management(given) as client:
        workflow = client.do(ReadWorkflow(name=given.name))
        if given.output == "table" and not prints_json():
            pages = client.do(ReadVersion()).pages
            rows = job_rows([workflow], {}, time.time(), all_states=True, dashboard=pages)
            return show([row for row in rows if given.name in row.values()])
    found = _document(workflow, given.name)
    print(json.dumps(found, indent=2) if given.output != "yaml" else dump_yaml(found).rstrip())
    return 0


def _document(workflow: Workflow, name: str) -> dict[str, Any]:
    """Return all that is known of a job and of its workflow, or of a workflow and its jobs."""
    found = workflow.model_dump(mode="json")
    job = next((each for each in found["jobs"] if each["name"] == name), None)
    return found if job is None else {**job, "workflow": found}


def _explain(given: argparse.Namespace) -> int:
    with management(given) as client:
        found = client.do(Explain(name=given.name))
    return tell("\n".join(_explanation_lines(found)), **found.model_dump(mode="json"))


def _explanation_lines(found: Explanation) -> list[str]:
    """Return an explanation in words."""
    lines = [f"{found.workflow}: {found.reason or 'it does not wait'}"]
    if found.place:
        lines.append(f"place in the queue: {found.place}")
    if start := expected_start(found):
        lines.append(f"expected start: {start}")
    return lines + [f"sooner: {each}" for each in found.sooner]


def _cancel(given: argparse.Namespace) -> int:
    """Cancel jobs; a program that runs on this host is interrupted, which ends its cluster."""
    names = _without_kind(given.names)
    with management(given) as client:
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


def _label(given: argparse.Namespace) -> int:
    name, *words = _without_kind(given.words)
    labels: dict[str, str | None] = {}
    for word in words:
        if word.endswith("-") and "=" not in word:
            labels[word[:-1]] = None
        else:
            labels.update(_labels(word))
    if not labels:
        raise ConfigError("labels must be given", code="label-form", where=name)
    with management(given) as client:
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


def _label_filter(text: str) -> dict[str, str]:
    try:
        return _labels(text)
    except ConfigError as error:
        raise argparse.ArgumentTypeError(error.what) from error


def _set_priority(given: argparse.Namespace) -> int:
    with management(given) as client:
        client.do(SetPriority(name=given.name, priority=PRIORITIES[given.priority]))
    text = f"successfully updated {given.name} job priority to {given.priority}"
    return tell(text, name=given.name, priority=given.priority)


NAME = argument(
    "name", help="the job, wsjob-..., or its workflow, wflow-...", complete=names_of_jobs
)

_LIST_FLAGS = (
    argument("-a", "--all-states", action="store_true", help="also those of the past week"),
    argument("-l", "--label", type=_label_filter, default={}, help="key=value,..."),
    argument("-u", "--user", help="those of one user"),
    argument("-w", "--watch", action="store_true", help="show the list again when it changes"),
)

COMMANDS = (
    Command(
        "get jobs",
        "list unfinished jobs by priority and age",
        _list,
        (
            *_LIST_FLAGS,
            *MANAGEMENT_FLAGS,
        ),
    ),
    Command(
        "get job",
        "show a job with its workflow",
        _get,
        (
            NAME,
            argument("-o", "--output", choices=("table", "yaml", "json"), default="table"),
            *MANAGEMENT_FLAGS,
        ),
    ),
    Command(
        "explain",
        "say why a job waits, when it starts, and what would start it sooner",
        _explain,
        (NAME, *MANAGEMENT_FLAGS),
    ),
    Command(
        "cancel",
        "end jobs and their programs",
        _cancel,
        (
            argument("names", nargs="+", help="jobs or workflows", complete=names_of_jobs),
            *MANAGEMENT_FLAGS,
        ),
    ),
    Command(
        "label",
        "add and remove labels",
        _label,
        (
            argument(
                "words",
                nargs="+",
                help="the job; then key=value adds one, key- removes one",
                complete=names_of_jobs,
            ),
            *MANAGEMENT_FLAGS,
        ),
    ),
    Command(
        "job set-priority",
        "change the priority of a job, its workflow, and its later jobs",
        _set_priority,
        (NAME, argument("priority", choices=tuple(PRIORITIES)), *MANAGEMENT_FLAGS),
    ),
)
