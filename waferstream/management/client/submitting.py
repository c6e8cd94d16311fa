"""Let an appliance run the command of this process, and follow it from here."""

from __future__ import annotations

import logging
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from waferstream.core.errors import ApplianceError, ClusterJobCancelledByCsctl, ConfigError
from waferstream.management.client.client import Client
from waferstream.management.client.following import follow
from waferstream.management.client.mirror import Mirror
from waferstream.management.client.package import pack
from waferstream.management.client.remote import RemoteClient
from waferstream.management.client.site import Address, connect
from waferstream.management.manager.commands import OF_CLIENT
from waferstream.management.model.job import Phase, new_workflow_name
from waferstream.management.model.operations import Cancel, Detach, Submit
from waferstream.management.model.workflow import Submission, Workflow

log = logging.getLogger("waferstream")

_SWITCHES = ("--detach",)
"""Flags without a value that a client removes."""


def submit(
    address: Address, submission: Submission, files: Sequence[Path], model_dir: Path | None
) -> Workflow:
    """Submit the command of this process, show what it prints, and copy its files.

    Args:
        address: The appliance.
        submission: The command, as yet without the working directory.
        files: What the command names: must be below the working directory, which travels.
        model_dir: Where the files of the run go; None for a command that writes none.

    Returns:
        The workflow: ended, or as it is when its user leaves.

    Raises:
        ConfigError: A file cannot travel.
        ApplianceError: The run has failed.
        ClusterJobCancelledByCsctl: It was cancelled.
    """
    for path in files:
        _check_travels(path)
    remote = connect(address)
    try:
        workflow = _submitted(remote, submission)
        log.info("Job id: %s, workflow id: %s", workflow.jobs[0].name, workflow.name)
        if submission.is_detached:
            return workflow
        mirror = None
        if model_dir is not None:
            mirror = Mirror(remote, workflow.name, model_dir)
            log.info(
                "Logs and reports appear in %s; checkpoints stay with the appliance: "
                "waferstream ctl export %s '*.mdl'",
                model_dir,
                workflow.name,
            )
        return _followed(remote, workflow, mirror)
    finally:
        remote.close()


def _submitted(remote: RemoteClient, submission: Submission) -> Workflow:
    """Send the working directory, then the workflow."""
    with tempfile.TemporaryDirectory() as folder:
        package = Path(folder) / "package.zip"
        pack(Path(), package)
        digest = remote.upload(package)
    submission = submission.model_copy(update={"package": digest})
    return remote.do(Submit(name=new_workflow_name(), submission=submission))


def travelling(words: Sequence[str]) -> tuple[str, ...]:
    """Return a command without the flags that are for its client, each with its value."""
    kept: list[str] = []
    rest = iter(words)
    for word in rest:
        name, equals, _ = word.partition("=")
        if name.startswith("--"):
            name = f"--{name[2:].replace('-', '_')}"
        if name in OF_CLIENT and not equals:
            next(rest, None)
        elif name not in (*OF_CLIENT, *_SWITCHES):
            kept.append(word)
    return tuple(kept)


def _check_travels(path: Path) -> None:
    if not path.resolve().is_relative_to(Path.cwd().resolve()):
        raise ConfigError(
            "a file of a submitted command must be below the working directory, which travels",
            code="file-stays-behind",
            value=str(path),
            rule=str(Path.cwd()),
            remedy="start the command in a folder that has all its files",
        )


def _followed(remote: Client, workflow: Workflow, mirror: Mirror | None) -> Workflow:
    """Follow a workflow to its end; Ctrl-C asks what is to become of it."""
    try:
        ended = follow(remote, workflow.name, mirror, sys.stdout.buffer)
    except KeyboardInterrupt:
        if not _leaves(workflow.name):
            remote.do(Cancel(name=workflow.name))
            log.info("%s is cancelled; its checkpoints stay until it is exported", workflow.name)
        else:
            remote.do(Detach(name=workflow.name))
            log.info("%s goes on: waferstream ctl follow %s", workflow.name, workflow.name)
        raise
    _raise_failure(ended)
    return ended


def _leaves(name: str) -> bool:
    """Ask whether a workflow is to go on without this process; without a terminal it is not."""
    if not sys.stdin.isatty():
        return False
    print(f"\n{name}: leave it running, or cancel it? [l/c] ", end="", file=sys.stderr, flush=True)
    try:
        return not sys.stdin.readline().strip().lower().startswith("c")
    except KeyboardInterrupt:
        return False


def _raise_failure(workflow: Workflow) -> None:
    if workflow.result is Phase.CANCELLED:
        raise ClusterJobCancelledByCsctl(
            "the job was cancelled", code="job-cancelled", where=workflow.name,
            value=workflow.reason,
        )  # fmt: skip
    if workflow.result is Phase.FAILED:
        raise ApplianceError(
            "the run has failed on the appliance",
            code="run-failed",
            where=workflow.name,
            value=workflow.reason,
            remedy=f"waferstream ctl log-export {workflow.name}",
        )
