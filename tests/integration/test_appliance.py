"""One appliance and its users: real processes, submitted from shells of their own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from tests.support.runs.tiny_run import ROOT, digest_of, run_here, write_run
from waferstream.management.client.address import keep_token
from waferstream.management.client.package import pack
from waferstream.management.client.remote import RemoteClient
from waferstream.management.manager.pace import Pace
from waferstream.management.model.event import Event, Fact, Progressed, Submitted
from waferstream.management.model.inventory import QueueSpec
from waferstream.management.model.job import PRIORITIES, Phase
from waferstream.management.model.operations import ListWorkflows, ReadEvents, Submit
from waferstream.management.model.workflow import Submission
from waferstream.management.server import Running, ServerSettings, running

INVENTORY = QueueSpec(systems=2, memoryx_groups=1).inventory()
LONG = {"max_steps": 60, "eval_frequency": 0}


@pytest.fixture(scope="module")
def appliance(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Run a management that pauses a run for any wait, however short the run is."""
    settings = ServerSettings(tmp_path_factory.mktemp("management"), INVENTORY)
    with patch.object(Pace, "resize_s", 0.1), running(settings) as server:
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


def made(folder: Path, **changes: Any) -> None:
    """Write the files of a run; what the appliance compiles is sealed with a key of its own."""
    folder.mkdir()
    write_run(folder, compiles=True, **changes)


def first(client: RemoteClient, name: str, is_wanted: Callable[[Fact], bool]) -> Event:
    """Wait for the first event that is wanted, of a workflow or of all; return it."""
    for part in client.follow(name):
        if isinstance(part, Event) and is_wanted(part.fact):
            return part
    raise AssertionError(f"{name} ended without it")


def has_done_a_step(fact: Fact) -> bool:
    return isinstance(fact, Progressed) and fact.progress.step > 0


def run_at_once(client: RemoteClient, folder: Path) -> str:
    """Submit the run of a folder with priority, without a shell that takes time; return its log."""
    pack(folder, folder / "package.zip")
    submission = Submission(
        words=("--params=params.yaml", "--cluster=cluster.yaml"),
        package=client.upload(folder / "package.zip"),
        num_csx=2,
        priority=PRIORITIES["p1"],
        is_detached=True,
    )
    name = client.do(Submit(submission=submission)).name
    return b"".join(part for part in client.follow(name) if isinstance(part, bytes)).decode()


@pytest.mark.timeout(300)
def test_urgent_run_pauses_another_and_both_end_with_the_hash_of_each_alone(
    tmp_path: Path,
    appliance: Running,
    client: RemoteClient,
    capsys: pytest.CaptureFixture[str],
) -> None:
    made(tmp_path / "long", init__loop=LONG)
    made(tmp_path / "short")
    address = f"--mgmt_address={appliance.doors.address}"
    with submitted(tmp_path / "long", appliance, address, "--job_priority=p3") as long:
        slow = first(client, "", lambda fact: isinstance(fact, Submitted)).workflow
        first(client, slow, has_done_a_step)
        short_out = run_at_once(client, tmp_path / "short")
        assert long.stdout is not None
        long_out = long.stdout.read()
    assert long.returncode == 0, long_out
    assert (tmp_path / "long" / "model_dir" / "loss.png").is_file()
    events = client.do(ReadEvents(name=slow))
    kinds = [each.fact.kind for each in events if each.fact.kind in ("asked", "placed")]
    assert kinds == ["placed", "asked", "placed"]
    (tmp_path / "alone").mkdir()
    for out, loop in ((long_out, LONG), (short_out, {"max_steps": 8})):
        keys: dict[str, Any] = {"init__loop": loop, "init__checkpoint": {"steps": None}}
        code, alone, err = run_here(write_run(tmp_path / "alone", **keys), capsys)
        assert code == 0, err
        assert digest_of(out) == digest_of(alone)
    ended = client.do(ListWorkflows(all_states=True))
    assert {each.result for each in ended} == {Phase.SUCCEEDED}
