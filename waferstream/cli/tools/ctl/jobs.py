"""Jobs: listed, explained, cancelled, labelled, put before others; what they print and write."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import sys
import time
from contextlib import suppress
from fnmatch import fnmatch
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Literal

import typer
from typer import Argument, Option

from waferstream.cli.frame.commands import command
from waferstream.cli.frame.output import (
    ask_for_no_pager,
    print_rows,
    prints_json,
    show,
    tell,
    tell_paths,
)
from waferstream.cli.tools.ctl.connection import Job, Management, names_of_jobs
from waferstream.cli.tools.ctl.tables import Row, expected_start, job_rows
from waferstream.core.config import dump_yaml
from waferstream.core.errors import ConfigError
from waferstream.host.files import json_text
from waferstream.host.processes import started_ticks
from waferstream.management.client.client import Client
from waferstream.management.client.mirror import Mirror
from waferstream.management.model.job import PRIORITIES, Phase
from waferstream.management.model.operations import (
    PRINTED,
    Cancel,
    Explain,
    FileEntry,
    Label,
    ListExplanations,
    ListFiles,
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
    whole = workflow.model_dump(mode="json")
    jobs = [{**job, "workflow": whole} for job in whole["jobs"] if job["name"] == name]
    found = jobs[0] if jobs else whole
    print(dump_yaml(found).rstrip() if output == "yaml" else json_text(found))
    return 0


@command("ctl explain", "wsjob-1")
def explain(name: Job, at: Management) -> int:
    """Say why a job waits, when it starts, and what would start it sooner."""
    with at.client() as client:
        found = client.do(Explain(name=name))
    lines = [f"{found.workflow}: {found.reason or 'it does not wait'}"]
    if found.place:
        lines.append(f"place in the queue: {found.place}")
    if start := expected_start(found):
        lines.append(f"expected start: {start}")
    lines += [f"sooner: {each}" for each in found.sooner]
    return tell("\n".join(lines), **found.model_dump(mode="json"))


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
    done = f"successfully updated {name} job priority to {priority}"
    return tell(done, name=name, priority=priority)


@command("ctl follow", "wsjob-1")
def follow(name: Job, at: Management) -> int:
    """Print what a job prints until it has ended; the exit code is 0 if it has succeeded."""
    out = (sys.stderr if prints_json() else sys.stdout).buffer
    with at.client() as client:
        for part in client.follow(name):
            if isinstance(part, bytes):
                out.write(part)
                out.flush()
        ended = client.do(ReadWorkflow(name=name))
    assert ended.result is not None, "it has ended"
    tell(f"{ended.name}: {ended.result}", name=ended.name, result=ended.result)
    return 0 if ended.result is Phase.SUCCEEDED else 1


@command("ctl log-export", "wsjob-1 -o logs")
def export_logs(
    *,
    name: Job,
    out: Annotated[Path, Option("-o", "--out", help="folder")] = Path(),
    at: Management,
) -> int:
    """Pack the logs of a job, and print the path of the archive."""
    out.mkdir(parents=True, exist_ok=True)
    with at.client() as client, TemporaryDirectory() as folder:
        workflow = client.do(ReadWorkflow(name=name))
        _copy_logs(client, workflow, Path(folder))
        archive = shutil.make_archive(str(out / name), "gztar", folder)
    return tell_paths(Path(archive))


def _copy_logs(client: Client, workflow: Workflow, folder: Path) -> None:
    """Copy the logs of a workflow, and what is known of it."""
    (folder / "workflow.json").write_text(workflow.model_dump_json(indent=2))
    if not workflow.is_embedded:
        logs = [each for each in client.do(ListFiles(name=workflow.name)) if _is_log(each)]
        Mirror(client, workflow.name, folder).update(logs)
        with suppress(ConfigError), open(folder / "printed.log", "wb") as file:  # before its start
            file.writelines(client.download(workflow.name, PRINTED))
        return
    for job in workflow.jobs:
        if job.log_path and Path(job.log_path).is_dir():
            shutil.copytree(job.log_path, folder / job.name)


def _is_log(entry: FileEntry) -> bool:
    return entry.path.endswith(".log")


@command("ctl export", "wsjob-1 '*.log' -o files")
def export(
    *,
    name: Job,
    patterns: Annotated[
        list[str] | None, Argument(help="such as '*.mdl' (default: all files)")
    ] = None,
    out: Annotated[
        Path | None, Option("-o", "--out", help="folder (default: the name of the job)")
    ] = None,
    at: Management,
) -> int:
    """Copy the files of a job, its checkpoints among them, and print their paths."""
    asked = patterns or ["*"]
    with at.client() as client:
        entries = client.do(ListFiles(name=name))
        wanted = [each for each in entries if any(fnmatch(each.path, p) for p in asked)]
        if not wanted:
            raise ConfigError(
                "the files must be among those that the management keeps for a run",
                code="data-file-not-found",
                where=name,
                value=", ".join(asked),
                rule=", ".join(sorted({Path(each.path).suffix or each.path for each in entries})),
                remedy="a run that nobody has submitted has its files in its model_dir already",
            )
        folder = out or Path(name)
        mirror = Mirror(client, name, folder, takes_checkpoints=True)
        return tell_paths(*mirror.update(wanted))
