"""Stored jobs: found, changed, scheduled, ended with their process, forgotten after a week."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from appliance.jobs.client import JobClient
from appliance.jobs.job import KEPT_S, ClusterJob, Condition, Phase, Request
from appliance.jobs.owner import this_process
from appliance.jobs.queue import QueueSpec, scheduled
from appliance.jobs.store import JobStore
from tests.support.errors import raises
from waferstream.core.errors import ConfigError


def test_submitted_job_is_found_and_moved(tmp_path: Path) -> None:
    store = JobStore(tmp_path)
    job = store.submit("compile", "wflow-1", Request(labels={"run": "a"}))
    assert re.fullmatch(r"wsjob-[a-z0-9]{22}", job.name)
    assert Path(job.log_path).is_dir()
    store.move(job.name, Phase.RUNNING)
    store.move(job.name, Phase.SUCCEEDED)
    store.move(job.name, Phase.FAILED)  # an ended job stays as it is
    found = JobStore(tmp_path).find(job.name)
    phases = [each.phase for each in found.conditions]
    assert phases == [Phase.CREATED, Phase.RUNNING, Phase.SUCCEEDED]
    assert JobStore(tmp_path).jobs() == [found]
    with raises(ConfigError, "unknown-job"):
        store.find("wsjob-none")


@pytest.mark.parametrize(("asked", "phase"), [(False, Phase.FAILED), (True, Phase.CANCELLED)])
def test_job_of_a_dead_process_is_ended(tmp_path: Path, asked: bool, phase: Phase) -> None:
    store = JobStore(tmp_path)
    name = store.submit("execute", "wflow-1", Request()).name
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        pass
    owner = this_process().model_copy(update={"pid": ended.pid})
    store.change(name, lambda job: job.model_copy(update={"owner": owner, "is_cancelled": asked}))
    (listed,) = store.jobs()
    assert listed.phase is phase


def test_job_of_another_process_with_the_number_is_ended(tmp_path: Path) -> None:
    store = JobStore(tmp_path)
    name = store.submit("execute", "wflow-1", Request()).name
    owner = this_process().model_copy(update={"started_ticks": 1})
    store.change(name, lambda job: job.model_copy(update={"owner": owner}))
    assert store.find(name).phase is Phase.FAILED


def test_jobs_are_forgotten_after_a_week(tmp_path: Path) -> None:
    store = JobStore(tmp_path)
    job = store.submit("compile", "wflow-1", Request())
    kept = store.submit("compile", "wflow-1", Request())

    def aged(job: ClusterJob) -> ClusterJob:
        ended = job.moved(Phase.SUCCEEDED, job.created_s)
        early = [(each.phase, each.time_s - KEPT_S - 60) for each in ended.conditions]
        conditions = tuple(Condition(phase=phase, time_s=time) for phase, time in early)
        return job.model_copy(update={"conditions": conditions})

    store.change(job.name, aged)
    assert [each.name for each in store.jobs()] == [kept.name]
    assert not Path(job.log_path).exists()


def test_one_job_of_two_is_scheduled(tmp_path: Path) -> None:
    store, spec = JobStore(tmp_path), QueueSpec(systems=2)
    names = [store.submit("execute", "w", Request()).name for _ in range(2)]
    for name in names:
        store.move(name, Phase.QUEUED)

    def schedule(name: str) -> ClusterJob:
        return store.decide(name, lambda jobs: scheduled(name, jobs, spec, time.time()))

    assert schedule(names[1]).phase is Phase.QUEUED
    assert schedule(names[0]).phase is Phase.SCHEDULED
    waiting = schedule(names[1])
    assert (waiting.phase, names[0] in waiting.reason) == (Phase.QUEUED, True)
    store.move(names[0], Phase.SUCCEEDED)
    assert schedule(names[1]).phase is Phase.SCHEDULED


def test_job_of_another_version_is_left_out(tmp_path: Path) -> None:
    store = JobStore(tmp_path)
    job = store.submit("compile", "wflow-1", Request())
    (Path(job.log_path) / "job.json").write_text('{"name": 1}')
    assert store.jobs() == []


def test_jobs_are_for_their_user_alone(tmp_path: Path) -> None:
    (tmp_path / "jobs").mkdir(mode=0o755)
    store = JobStore(tmp_path)
    job = store.submit("compile", "wflow-1", Request())
    store.move(job.name, Phase.RUNNING)
    modes = {path: path.stat().st_mode & 0o777 for path in [*tmp_path.rglob("*")]}
    assert len(modes) == 4
    assert all(mode == (0o700 if path.is_dir() else 0o600) for path, mode in modes.items())


def test_stored_job_cannot_name_another_folder(tmp_path: Path) -> None:
    """What is read is written back under its name when its process has ended."""
    store = JobStore(tmp_path)
    job = store.submit("compile", "wflow-1", Request())
    path = Path(job.log_path) / "job.json"
    path.write_text(path.read_text().replace(job.name, "../../outside", 1))
    assert store.jobs() == []
    assert not list(tmp_path.glob("outside*"))


def test_run_without_a_home_folder_is_not_listed(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A user without a home, as in a container, or whose home is read-only, can still run."""
    for name in ("WAFERSTREAM_STATE", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Path, "home", no_home)
    client = JobClient(Request(), None, lambda: "wflow-1")
    with client.compiling():
        pass
    client.start_execute()
    client.end_execute(None)
    assert "not listed" in caplog.text


def no_home() -> Path:
    raise RuntimeError("Could not determine home directory.")
