"""The jobs of a program: their phases, the queue, an end from outside."""

from __future__ import annotations

import logging
import shutil
import threading
from pathlib import Path

import pytest

from appliance.jobs import client as client_module
from appliance.jobs.client import JobClient
from appliance.jobs.job import PRIORITIES, ClusterJob, Phase, Request
from appliance.jobs.queue import QueueSpec
from appliance.jobs.registry import Registry
from tests.support.errors import raises
from waferstream.core.errors import (
    ApplianceRuntimeServerError,
    ClusterJobCancelledByCsctl,
    ClusterJobScheduleError,
    ConfigError,
)

ONE = QueueSpec(systems=2)


@pytest.fixture(autouse=True)
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Registry:
    """Return an empty registry, which clients use as well."""
    monkeypatch.setenv("WAFERSTREAM_STATE", str(tmp_path))
    monkeypatch.setattr(client_module, "POLL_S", 0.01)
    return Registry()


def client(queue: QueueSpec | None = None, at: str = "p2", num_csx: int = 1) -> JobClient:
    request = Request(num_csx=num_csx, priority=PRIORITIES[at])
    return JobClient(request, queue, lambda: "wflow-1")


def phases(job: ClusterJob) -> list[str]:
    return [each.phase.value for each in job.conditions]


def test_program_has_a_compile_and_an_execute_job(registry: Registry) -> None:
    """Both are of one workflow, and each has a log of the lines in its time."""
    jobs, log = client(), logging.getLogger("waferstream")
    with jobs.compiling():
        log.warning("while it compiles")
    jobs.start_execute()
    jobs.note_running()
    with jobs.executing():
        log.warning("while it executes")
    jobs.end_execute(None)
    compiled, executed = registry.jobs()
    assert [compiled.kind, executed.kind] == ["compile", "execute"]
    assert phases(compiled) == ["CREATED", "SCHEDULED", "RUNNING", "SUCCEEDED"]
    assert phases(executed) == ["CREATED", "SCHEDULED", "INITIALIZING", "RUNNING", "SUCCEEDED"]
    assert {compiled.workflow, executed.workflow} == {"wflow-1"}
    text = (Path(executed.log_path) / "job.log").read_text()
    assert ("while it executes" in text, "while it compiles" in text) == (True, False)


def test_error_of_the_cluster_fails_the_job(registry: Registry) -> None:
    jobs = client()
    jobs.start_execute()
    jobs.note_running()
    error = ApplianceRuntimeServerError("csx-0 died", code="role-died")

    def run() -> None:
        raise error

    with raises(ApplianceRuntimeServerError, "role-died"), jobs.executing():
        run()
    jobs.end_execute(error)
    (job,) = registry.jobs()
    assert phases(job)[-3:] == ["RUNNING", "FAILING", "FAILED"]
    assert job.reason == "csx-0 died [role-died]"


@pytest.mark.parametrize("interrupts", [False, True])
def test_cancelled_job_ends_with_its_error(registry: Registry, interrupts: bool) -> None:
    """Before further steps, and where the command interrupts the program in them."""
    jobs = client()
    jobs.start_execute()
    name = registry.jobs()[0].name

    def mark() -> None:
        registry.change(name, lambda job: job.model_copy(update={"is_cancelled": True}))

    def run() -> None:
        assert interrupts, "the block is not entered"
        mark()
        raise KeyboardInterrupt

    if not interrupts:
        mark()
    with raises(ClusterJobCancelledByCsctl, "job-cancelled"), jobs.executing():
        run()
    jobs.end_execute(ClusterJobCancelledByCsctl("cancelled"))
    assert registry.find(name).phase is Phase.CANCELLED


def test_second_run_waits_for_the_first(registry: Registry) -> None:
    first, second = client(ONE), client(ONE)
    first.start_execute()
    waiting = threading.Thread(target=second.start_execute)
    waiting.start()
    _wait_until_queued(registry)
    before, after = registry.jobs()
    assert before.name in after.reason
    assert waiting.is_alive()
    first.end_execute(None)
    waiting.join()
    assert phases(registry.find(after.name))[-2:] == ["SCHEDULED", "INITIALIZING"]
    second.end_execute(None)


def test_waiting_job_can_be_cancelled(registry: Registry) -> None:
    first, second = client(ONE), client(ONE)
    first.start_execute()
    ended: list[Exception] = []

    def wait() -> None:
        try:
            second.start_execute()
        except ClusterJobCancelledByCsctl as error:
            ended.append(error)

    waiting = threading.Thread(target=wait)
    waiting.start()
    name = _wait_until_queued(registry)
    registry.change(name, lambda job: job.model_copy(update={"is_cancelled": True}))
    waiting.join()
    assert len(ended) == 1
    assert registry.find(name).phase is Phase.CANCELLED
    first.end_execute(None)


def test_waiting_job_whose_record_is_removed_ends_with_an_error(registry: Registry) -> None:
    """As by somebody who clears the state folder."""
    first, second = client(ONE), client(ONE)
    first.start_execute()
    ended: list[ConfigError] = []

    def wait() -> None:
        try:
            second.start_execute()
        except ConfigError as error:
            ended.append(error)

    waiting = threading.Thread(target=wait)
    waiting.start()
    shutil.rmtree(registry.find(_wait_until_queued(registry)).log_path)
    waiting.join()
    assert [error.code for error in ended] == ["unknown-job"]
    first.end_execute(None)


def _wait_until_queued(registry: Registry) -> str:
    """Return the name of the job that waits with a reason."""
    while True:
        for job in registry.jobs():
            if job.phase is Phase.QUEUED and job.reason:
                return job.name


def test_changed_priority_holds_for_later_jobs(registry: Registry) -> None:
    jobs = client(at="p3")
    with jobs.compiling():
        (job,) = registry.jobs()
        registry.change(job.name, lambda job: job.with_request(priority=PRIORITIES["p1"]))
    jobs.start_execute()
    assert registry.jobs()[1].request.priority == PRIORITIES["p1"]
    jobs.end_execute(None)


def test_run_goes_on_where_jobs_cannot_be_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that must queue cannot."""
    (tmp_path / "file").touch()
    monkeypatch.setenv("WAFERSTREAM_STATE", str(tmp_path / "file"))
    jobs = client()
    with jobs.compiling():
        pass
    jobs.start_execute()
    with jobs.executing():
        pass
    jobs.end_execute(None)
    with raises(ClusterJobScheduleError, "state-folder-not-writable"):
        client(ONE).start_execute()


def test_more_systems_than_the_queue_has_fail_the_job(registry: Registry) -> None:
    with raises(ClusterJobScheduleError, "more-systems-than-cluster"):
        client(ONE, num_csx=3).start_execute()
    assert phases(registry.jobs()[0])[-2:] == ["FAILING", "FAILED"]


def test_evaluation_of_a_run_is_not_queued_again(registry: Registry) -> None:
    """Its systems are reserved while it compiles and evaluates; the next run starts after it."""
    first = client(ONE, num_csx=2)
    first.start_execute()
    first.note_running()
    other = threading.Thread(target=start_and_end, args=(client(ONE, num_csx=2, at="p1"),))
    other.start()
    _wait_until_queued(registry)
    for _ in range(2):  # evaluation, then training again
        with first.compiling():
            pass
        with first.executing():
            (waiting,) = [job for job in registry.jobs() if job.phase is Phase.QUEUED]
    first.end_execute(None)
    other.join()
    done = {job.name: job for job in registry.jobs()}
    assert phases(done[waiting.name])[-1] == "SUCCEEDED"
    executions = [job for job in done.values() if job.kind == "execute"]
    assert len(executions) == 2
    assert "QUEUED" not in phases(executions[0])[2:]


def start_and_end(jobs: JobClient) -> None:
    """Run an execute job that does nothing."""
    jobs.start_execute()
    jobs.end_execute(None)
