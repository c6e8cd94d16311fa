"""What jobs print and write: followed, packed, and copied."""

from __future__ import annotations

import argparse
import shutil
import sys
from contextlib import suppress
from fnmatch import fnmatch
from pathlib import Path
from tempfile import TemporaryDirectory

from waferstream.cli.frame.output import prints_json, tell, tell_paths
from waferstream.cli.tools.command import Command, argument
from waferstream.cli.tools.ctl.connection import MANAGEMENT_FLAGS, management
from waferstream.cli.tools.ctl.jobs import NAME
from waferstream.core.errors import ConfigError
from waferstream.management.client.client import Client
from waferstream.management.client.mirror import Mirror
from waferstream.management.model.job import Phase
from waferstream.management.model.operations import PRINTED, FileEntry, ListFiles, ReadWorkflow
from waferstream.management.model.workflow import Workflow


def _follow(given: argparse.Namespace) -> int:
    """Print what a job prints until it has ended; return 0 if it has succeeded."""
    out = (sys.stderr if prints_json() else sys.stdout).buffer
    with management(given) as client:
        for part in client.follow(given.name):
            if isinstance(part, bytes):
                out.write(part)
                out.flush()
        ended = client.do(ReadWorkflow(name=given.name))
    assert ended.result is not None, "it has ended"
    tell(f"{ended.name}: {ended.result}", name=ended.name, result=ended.result)
    return 0 if ended.result is Phase.SUCCEEDED else 1


def _log_export(given: argparse.Namespace) -> int:
    """Pack the logs of a job, and print the path of the archive."""
    given.out.mkdir(parents=True, exist_ok=True)
    with management(given) as client, TemporaryDirectory() as folder:
        workflow = client.do(ReadWorkflow(name=given.name))
        _copy_logs(client, workflow, Path(folder))
        archive = shutil.make_archive(str(given.out / given.name), "gztar", folder)
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


def _export(given: argparse.Namespace) -> int:
    """Copy files of a run, its checkpoints among them, and print their paths."""
    with management(given) as client:
        entries = client.do(ListFiles(name=given.name))
        wanted = [each for each in entries if any(fnmatch(each.path, p) for p in given.patterns)]
        if not wanted:
            raise ConfigError(
                "the files must be among those that the management keeps for a run",
                code="data-file-not-found",
                where=given.name,
                value=", ".join(given.patterns),
                rule=", ".join(sorted({Path(each.path).suffix or each.path for each in entries})),
                remedy="a run that nobody has submitted has its files in its model_dir already",
            )
        folder = given.out or Path(given.name)
        mirror = Mirror(client, given.name, folder, takes_checkpoints=True)
        return tell_paths(*mirror.update(wanted))


COMMANDS = (
    Command(
        "follow",
        "print what a job prints until it has ended",
        _follow,
        (NAME, *MANAGEMENT_FLAGS),
    ),
    Command(
        "log-export",
        "pack the logs of a job",
        _log_export,
        (
            NAME,
            argument("-o", "--out", type=Path, default=Path(), help="folder (default: here)"),
            *MANAGEMENT_FLAGS,
        ),
    ),
    Command(
        "export",
        "copy the files of a job, its checkpoints among them",
        _export,
        (
            NAME,
            argument(
                "patterns", nargs="*", default=["*"], help="such as '*.mdl' (default: all files)"
            ),
            argument("-o", "--out", type=Path, help="folder (default: the name of the job)"),
            *MANAGEMENT_FLAGS,
        ),
    ),
)
