"""Prometheus watches real runs of an appliance: each expression of each panel has data."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.management.dashboards import expressions
from tests.support.management.prometheus import NEEDS_PROMETHEUS, prometheus
from tests.support.runs.tiny_run import ROOT, write_run
from waferstream.management.client.address import keep_token
from waferstream.management.client.remote import RemoteClient
from waferstream.management.model.inventory import QueueSpec
from waferstream.management.model.operations import Cancel, ListWorkflows
from waferstream.management.server import ServerSettings, running

pytestmark = [pytest.mark.nightly, NEEDS_PROMETHEUS]

STEPS = {"first": 8, "second": 10_000}


def submit(folder: Path, client: RemoteClient, address: str) -> str:
    """Submit the run of a folder from a shell there, and leave; return the name of the workflow."""
    folder.mkdir()
    loop = {"max_steps": STEPS[folder.name], "eval_frequency": 0}
    write_run(folder, compiles=True, init__loop=loop, init__checkpoint={"steps": None})
    flags = ["--params=params.yaml", "--cluster=cluster.yaml", "--num_csx=2", "--detach"]
    command = [sys.executable, str(ROOT / "run.py"), *flags, f"--mgmt_address={address}"]
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    workflows = client.do(ListWorkflows())
    return max(workflows, key=lambda each: each.submitted_s).name


def cancel(client: RemoteClient, name: str) -> None:
    """Cancel a workflow, and wait for its end."""
    client.do(Cancel(name=name))
    for _ in client.follow(name):
        pass  # it ends with the workflow


@pytest.mark.timeout(400)
def test_every_expression_has_data_of_a_job_that_has_waited(tmp_path: Path) -> None:
    settings = ServerSettings(tmp_path / "management", QueueSpec(systems=2).inventory())
    with (
        running(settings) as server,
        prometheus(tmp_path, server.doors.url, server.token) as watching,
    ):
        keep_token(server.doors.address, server.token)
        client = RemoteClient(server.doors.address, server.token)
        submit(tmp_path / "first", client, server.doors.address)
        name = submit(tmp_path / "second", client, server.doors.address)
        try:
            watching.wait_for(f'waferstream_step{{workflow="{name}"}}', 200)
            for expression in expressions(name, "csx-1"):
                watching.wait_for(expression)
        finally:
            cancel(client, name)
            client.close()
