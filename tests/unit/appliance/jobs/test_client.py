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
from appliance.jobs.store import JobStore
from tests.support.errors import raises
from waferstream.core.errors import (
    ApplianceRuntimeServerError,
    ClusterJobCancelledByCsctl,
    ClusterJobScheduleError,
    ConfigError,
)

ONE = QueueSpec(systems=2)


@pytest.fixture(autouse=True)
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> JobStore:
    """Return an empty store, which clients use as well."""
    monkeypatch.setenv("WAFERSTREAM_STATE", str(tmp_path))
    monkeypatch.setattr(client_module, "POLL_S", 0.01)
    return JobStore()


def client(queue: QueueSpec | None = None, at: str = "p2", num_csx: int = 1) -> JobClient:
    request = Request(num_csx=num_csx, priority=PRIORITIES[at])
    return JobClient(request, queue, lambda: "wflow-1")


def phases(job: ClusterJob) -> list[str]:
    return [each.phase.value for each in job.conditions]


def test_program_has_a_compile_and_an_execute_job(store: JobStore) -> None:
    """Both are of one workflow, and each has a log of the lines in its time."""
    jobs, log = client(), logging.getLogger("waferstream")
    with jobs.compiling():
        log.warning("while it compiles")
    jobs.start_execute()
    jobs.note_running()
    with jobs.executing():
        log.warning("while it executes")
    jobs.end_execute(None)
    compiled, executed = store.jobs()
    assert [compiled.kind, executed.kind] == ["compile", "execute"]
    assert phases(compiled) == ["CREATED", "SCHEDULED", "RUNNING", "SUCCEEDED"]
    assert phases(executed) == ["CREATED", "SCHEDULED", "INITIALIZING", "RUNNING", "SUCCEEDED"]
    assert {compiled.workflow, executed.workflow} == {"wflow-1"}
    text = (Path(executed.log_path) / "job.log").read_text()
    assert ("while it executes" in text, "while it compiles" in text) == (True, False)


def test_error_of_the_cluster_fails_the_job(store: JobStore) -> None:
    jobs = client()
    jobs.start_execute()
    jobs.note_running()
    error = ApplianceRuntimeServerError("csx-0 died", code="role-died")

    def run() -> None:
        raise error

    with raises(ApplianceRuntimeServerError, "role-died"), jobs.executing():
        run()
    jobs.end_execute(error)
    (job,) = store.jobs()
    assert phases(job)[-3:] == ["RUNNING", "FAILING", "FAILED"]
    assert job.reason == "csx-0 died [role-died]"


@pytest.mark.parametrize("interrupts", [False, True])
def test_cancelled_job_ends_with_its_error(store: JobStore, interrupts: bool) -> None:
    """Before further steps, and where the command interrupts the program in them."""
    jobs = client()
    jobs.start_execute()
    name = store.jobs()[0].name

    def mark() -> None:
        store.change(name, lambda job: job.model_copy(update={"is_cancelled": True}))

    def run() -> None:
        assert interrupts, "the block is not entered"
        mark()
        raise KeyboardInterrupt

    if not interrupts:
        mark()
    with raises(ClusterJobCancelledByCsctl, "job-cancelled"), jobs.executing():
        run()
    jobs.end_execute(ClusterJobCancelledByCsctl("cancelled"))
    assert store.find(name).phase is Phase.CANCELLED


def test_second_run_waits_for_the_first(store: JobStore) -> None:
    first, second = client(ONE), client(ONE)
    first.start_execute()
    waiting = threading.Thread(target=second.start_execute)
    waiting.start()
    _wait_until_queued(store)
    before, after = store.jobs()
    assert before.name in after.reason
    assert waiting.is_alive()
    first.end_execute(None)
    waiting.join()
    assert phases(store.find(after.name))[-2:] == ["SCHEDULED", "INITIALIZING"]
    second.end_execute(None)


def test_waiting_job_can_be_cancelled(store: JobStore) -> None:
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
    name = _wait_until_queued(store)
    store.change(name, lambda job: job.model_copy(update={"is_cancelled": True}))
    waiting.join()
    assert len(ended) == 1
    assert store.find(name).phase is Phase.CANCELLED
    first.end_execute(None)


def test_waiting_job_whose_record_is_removed_ends_with_an_error(store: JobStore) -> None:
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
    shutil.rmtree(store.find(_wait_until_queued(store)).log_path)
    waiting.join()
    assert [error.code for error in ended] == ["unknown-job"]
    first.end_execute(None)


def _wait_until_queued(store: JobStore) -> str:
    """Return the name of the job that waits with a reason."""
    while True:
        for job in store.jobs():
            if job.phase is Phase.QUEUED and job.reason:
                return job.name


def test_changed_priority_holds_for_later_jobs(store: JobStore) -> None:
    jobs = client(at="p3")
    with jobs.compiling():
        (job,) = store.jobs()
        store.change(job.name, lambda job: job.with_request(priority=PRIORITIES["p1"]))
    jobs.start_execute()
    assert store.jobs()[1].request.priority == PRIORITIES["p1"]
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


def test_more_systems_than_the_queue_has_fail_the_job(store: JobStore) -> None:
    with raises(ClusterJobScheduleError, "more-systems-than-cluster"):
        client(ONE, num_csx=3).start_execute()
    assert phases(store.jobs()[0])[-2:] == ["FAILING", "FAILED"]


def test_evaluation_of_a_run_is_not_queued_again(store: JobStore) -> None:
    """Its systems are reserved while it compiles and evaluates; the next run starts after it."""
    first = client(ONE, num_csx=2)
    first.start_execute()
    first.note_running()
    other = threading.Thread(target=start_and_end, args=(client(ONE, num_csx=2, at="p1"),))
    other.start()
    _wait_until_queued(store)
    for _ in range(2):  # evaluation, then training again
        with first.compiling():
            pass
        with first.executing():
            (waiting,) = [job for job in store.jobs() if job.phase is Phase.QUEUED]
    first.end_execute(None)
    other.join()
    done = {job.name: job for job in store.jobs()}
    assert phases(done[waiting.name])[-1] == "SUCCEEDED"
    executions = [job for job in done.values() if job.kind == "execute"]
    assert len(executions) == 2
    assert "QUEUED" not in phases(executions[0])[2:]


def start_and_end(jobs: JobClient) -> None:
    """Run an execute job that does nothing."""
    jobs.start_execute()
    jobs.end_execute(None)
