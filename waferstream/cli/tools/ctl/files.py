"""What jobs print and write: followed, packed, and copied."""

from __future__ import annotations

import shutil
import sys
from contextlib import suppress
from fnmatch import fnmatch
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

from typer import Argument, Option

from waferstream.cli.frame.commands import command
from waferstream.cli.frame.output import prints_json, tell, tell_paths
from waferstream.cli.tools.ctl.connection import Job, Management
from waferstream.core.errors import ConfigError
from waferstream.management.client.client import Client
from waferstream.management.client.mirror import Mirror
from waferstream.management.model.job import Phase
from waferstream.management.model.operations import PRINTED, FileEntry, ListFiles, ReadWorkflow
from waferstream.management.model.workflow import Workflow


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
