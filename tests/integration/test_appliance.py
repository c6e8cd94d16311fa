"""One appliance and its users: real processes, submitted from shells of their own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.runs.tiny_run import ROOT, digest_of, finish, write_run
from waferstream.management.client.address import keep_token
from waferstream.management.client.remote import RemoteClient
from waferstream.management.model.event import Event, Progressed
from waferstream.management.model.inventory import QueueSpec
from waferstream.management.model.job import Phase
from waferstream.management.model.operations import ListWorkflows, ReadEvents
from waferstream.management.model.workflow import Workflow
from waferstream.management.server import Running, ServerSettings, running

INVENTORY = QueueSpec(systems=2, memoryx_groups=1).inventory()
LONG = {"max_steps": 60, "eval_frequency": 0}


@pytest.fixture(scope="module")
def appliance(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    settings = ServerSettings(tmp_path_factory.mktemp("management"), INVENTORY)
    with running(settings) as server:
        keep_token(server.doors.address, server.token)
        yield server


@pytest.fixture
def client(appliance: Running) -> Iterator[RemoteClient]:
    made = RemoteClient(appliance.doors.address, appliance.token)
    yield made
    made.close()


def submitted(folder: Path, appliance: Running, *words: str) -> subprocess.Popen[str]:
    """Submit the run of a folder from a shell there."""
    command = ["--params=params.yaml", "--cluster=cluster.yaml", "--num_csx=2", *words]
    return subprocess.Popen(
        [sys.executable, str(ROOT / "run.py"), *command],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def made(folder: Path, **changes: Any) -> list[str]:
    folder.mkdir()
    return write_run(folder, **changes)


def wait_for_step(client: RemoteClient, name: str) -> None:
    """Wait until a run has done a step."""
    for part in client.follow(name):
        if (
            isinstance(part, Event)
            and isinstance(part.fact, Progressed)
            and part.fact.progress.step
        ):
            return
    raise AssertionError(f"{name} ended without a step")


def newest(client: RemoteClient, but: set[str]) -> Workflow:
    """Return the workflow that was submitted last, once there is one."""
    while True:
        found = [each for each in client.do(ListWorkflows()) if each.name not in but]
        if found:
            return found[0]


@pytest.mark.timeout(300)
def test_urgent_run_pauses_another_and_both_end_with_the_hash_of_each_alone(
    tmp_path: Path, appliance: Running, client: RemoteClient
) -> None:
    address = f"--mgmt_address={appliance.doors.address}"
    own = {"long": made(tmp_path / "long", init__loop=LONG), "short": made(tmp_path / "short")}
    with submitted(tmp_path / "long", appliance, address, "--job_priority=p3") as long:
        slow = newest(client, set())
        wait_for_step(client, slow.name)
        with submitted(tmp_path / "short", appliance, address, "--job_priority=p1") as short:
            assert short.stdout is not None
            short_out = short.stdout.read()
        assert short.returncode == 0, short_out
        assert long.stdout is not None
        long_out = long.stdout.read()
    assert long.returncode == 0, long_out
    events = client.do(ReadEvents(name=slow.name))
    kinds = [each.fact.kind for each in events if each.fact.kind in ("asked", "placed")]
    assert kinds == ["placed", "asked", "placed"]
    for name, out in (("long", long_out), ("short", short_out)):
        code, alone, err = finish(own[name])
        assert code == 0, err
        assert digest_of(out) == digest_of(alone)
        assert (tmp_path / name / "model_dir" / "loss.png").is_file()
    ended = client.do(ListWorkflows(all_states=True))
    assert {each.result for each in ended} == {Phase.SUCCEEDED}
