"""The jobs of a program: their phases, the queue, an end from outside."""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.errors import raises
from waferstream.core.errors import (
    ApplianceRuntimeServerError,
    ClusterJobCancelledByCsctl,
    ClusterJobScheduleError,
    WaferStreamError,
)
from waferstream.management.client import jobs as jobs_module
from waferstream.management.client.client import STORE, EmbeddedClient
from waferstream.management.client.jobs import JobClient
from waferstream.management.model.inventory import QueueSpec
from waferstream.management.model.job import PRIORITIES, Job, Phase, new_workflow_name
from waferstream.management.model.operations import Cancel, ListWorkflows, SetPriority
from waferstream.management.model.workflow import Stage, Submission, Workflow
from waferstream.management.store.opening import open_store
from waferstream.management.store.store import Store

ONE = QueueSpec(systems=2)


@pytest.fixture(autouse=True)
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[EmbeddedClient]:
    """Return a client of an empty store, which programs use as well."""
    monkeypatch.setenv("WAFERSTREAM_STATE", str(tmp_path))
    monkeypatch.setattr(jobs_module, "POLL_S", 0.01)
    made = EmbeddedClient()
    yield made
    made.close()


def program(queue: QueueSpec | None = None, at: str = "p2", num_csx: int = 1) -> JobClient:
    submission = Submission(num_csx=num_csx, priority=PRIORITIES[at])
    return JobClient(submission, queue, new_workflow_name)


def workflows(asked: EmbeddedClient) -> list[Workflow]:
    return asked.do(ListWorkflows(all_states=True))


def listed(asked: EmbeddedClient) -> list[Job]:
    return [job for workflow in workflows(asked) for job in workflow.jobs]


def phases(job: Job) -> list[str]:
    return [each.phase.value for each in job.conditions]


def test_program_has_a_compile_and_an_execute_job(asked: EmbeddedClient) -> None:
    """Both are of one workflow, and each has a log of the lines in its time."""
    name, log = new_workflow_name(), logging.getLogger("waferstream")
    jobs = JobClient(Submission(), None, lambda: name)
    with jobs.compiling():
        log.warning("while it compiles")
    jobs.start_execute()
    jobs.note_running()
    with jobs.executing():
        log.warning("while it executes")
    jobs.end_execute(None)
    jobs.close()
    (workflow,) = workflows(asked)
    assert (workflow.stage, workflow.result) == (Stage.ENDED, Phase.SUCCEEDED)
    compiled, executed = workflow.jobs
    assert [compiled.kind, executed.kind] == ["compile", "execute"]
    assert phases(compiled) == ["CREATED", "SCHEDULED", "RUNNING", "SUCCEEDED"]
    assert phases(executed) == ["CREATED", "SCHEDULED", "INITIALIZING", "RUNNING", "SUCCEEDED"]
    assert workflow.name == name
    text = (Path(executed.log_path) / "job.log").read_text()
    assert ("while it executes" in text, "while it compiles" in text) == (True, False)


def test_error_of_the_cluster_fails_the_job(asked: EmbeddedClient) -> None:
    jobs = program()
    jobs.start_execute()
    jobs.note_running()
    error = ApplianceRuntimeServerError("csx-0 died", code="role-died")

    def run() -> None:
        raise error

    with raises(ApplianceRuntimeServerError, "role-died"), jobs.executing():
        run()
    jobs.end_execute(error)
    (job,) = listed(asked)
    assert phases(job)[-3:] == ["RUNNING", "FAILING", "FAILED"]
    assert job.message == "csx-0 died [role-died]"


@pytest.mark.parametrize("interrupts", [False, True])
def test_cancelled_job_ends_with_its_error(asked: EmbeddedClient, interrupts: bool) -> None:
    """Before further steps, and where the command interrupts the program in them."""
    jobs = program()
    jobs.start_execute()
    name = workflows(asked)[0].name

    def run() -> None:
        assert interrupts, "the block is not entered"
        asked.do(Cancel(name=name))
        raise KeyboardInterrupt

    if not interrupts:
        asked.do(Cancel(name=name))
    with raises(ClusterJobCancelledByCsctl, "job-cancelled"), jobs.executing():
        run()
    jobs.end_execute(ClusterJobCancelledByCsctl("cancelled"))
    assert listed(asked)[0].phase is Phase.CANCELLED


def test_second_run_waits_for_the_first(asked: EmbeddedClient) -> None:
    first, second = program(ONE), program(ONE)
    first.start_execute()
    waiting = threading.Thread(target=second.start_execute)
    waiting.start()
    before, after = _wait_for_reason(asked)
    assert before.name in after.reason
    assert waiting.is_alive()
    first.end_execute(None)
    waiting.join()
    assert phases(asked_job(asked, after.name))[-2:] == ["SCHEDULED", "INITIALIZING"]
    second.end_execute(None)


def test_waiting_job_can_be_cancelled(asked: EmbeddedClient) -> None:
    first, second = program(ONE), program(ONE)
    first.start_execute()
    ended: list[Exception] = []
    waiting = threading.Thread(target=_start, args=(second, ended))
    waiting.start()
    _, after = _wait_for_reason(asked)
    asked.do(Cancel(name=after.name))
    waiting.join()
    assert [type(each) for each in ended] == [ClusterJobCancelledByCsctl]
    assert asked_job(asked, after.name).phase is Phase.CANCELLED
    first.end_execute(None)


def test_higher_priority_goes_first(asked: EmbeddedClient) -> None:
    first, low, high = program(ONE), program(ONE, "p3"), program(ONE, "p1")
    first.start_execute()
    order: list[str] = []

    def run(jobs: JobClient, name: str) -> None:
        jobs.start_execute()
        order.append(name)
        jobs.end_execute(None)

    threads = [threading.Thread(target=run, args=(low, "low"))]
    threads[0].start()
    _wait_for_reason(asked)
    threads.append(threading.Thread(target=run, args=(high, "high")))
    threads[1].start()
    _wait_for_reason(asked, count=3)
    first.end_execute(None)
    for thread in threads:
        thread.join()
    assert order == ["high", "low"]


def test_changed_priority_holds_for_later_jobs(asked: EmbeddedClient) -> None:
    jobs = program(at="p3")
    with jobs.compiling():
        (workflow,) = workflows(asked)
        asked.do(SetPriority(name=workflow.jobs[0].name, priority=PRIORITIES["p1"]))
    jobs.start_execute()
    assert workflows(asked)[0].submission.priority == PRIORITIES["p1"]
    jobs.end_execute(None)


def test_evaluation_of_a_run_is_not_queued_again(asked: EmbeddedClient) -> None:
    """Its systems are reserved while it compiles and evaluates; the next run starts after it."""
    name = new_workflow_name()
    first = JobClient(Submission(num_csx=2), ONE, lambda: name)
    first.start_execute()
    first.note_running()
    other = threading.Thread(target=_start, args=(program(ONE, "p1", 2), []))
    other.start()
    _, waiting = _wait_for_reason(asked)
    for _ in range(2):  # evaluation, then training again
        with first.compiling():
            pass
        with first.executing():
            assert asked_job(asked, waiting.name).phase is Phase.QUEUED
    first.end_execute(None)
    other.join()
    assert asked_job(asked, waiting.name).phase is Phase.INITIALIZING
    own = next(each for each in workflows(asked) if each.name == name)
    executions = [job for job in own.jobs if job.kind == "execute"]
    assert "QUEUED" not in phases(executions[0])[2:]


def test_process_beats_while_it_runs(
    tmp_path: Path, asked: EmbeddedClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other hosts, which do not see it, take a silent process for dead."""
    monkeypatch.setattr(jobs_module, "BEAT_S", 0.01)
    jobs = program()
    jobs.start_execute()
    (workflow,) = workflows(asked)
    store = open_store(tmp_path / STORE)
    first = beat_of(store, workflow.name)
    while beat_of(store, workflow.name) == first:
        pass
    jobs.end_execute(None)
    store.close()


def beat_of(store: Store, workflow: str) -> float:
    with store.reading() as views:
        return views.beats("client")[workflow]


def test_job_of_a_dead_process_is_ended(tmp_path: Path, asked: EmbeddedClient) -> None:
    code = (
        "import os; from waferstream.management.client.jobs import JobClient;"
        "from waferstream.management.model.workflow import Submission;"
        "jobs = JobClient(Submission(), None, lambda: 'wflow-' + 'a' * 22);"
        "jobs.start_execute(); os._exit(9)"
    )
    env = {**os.environ, "WAFERSTREAM_STATE": str(tmp_path)}
    assert subprocess.run([sys.executable, "-c", code], env=env, check=False).returncode == 9
    asked.turn()
    (workflow,) = workflows(asked)
    assert workflow.result is Phase.FAILED
    assert workflow.jobs[0].phase is Phase.FAILED


def test_job_that_never_fits_is_refused() -> None:
    with raises(ClusterJobScheduleError, "more-systems-than-cluster"):
        program(ONE, num_csx=3).start_execute()


def test_run_goes_on_where_nothing_can_be_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("WAFERSTREAM_STATE", str(tmp_path / "file"))
    jobs = program()
    jobs.start_execute()
    jobs.end_execute(None)
    assert "The job is not listed" in caplog.text
    with raises(ClusterJobScheduleError, "state-folder-not-writable"):
        program(ONE).start_execute()


def test_run_outlives_its_record(
    tmp_path: Path, asked: EmbeddedClient, caplog: pytest.LogCaptureFixture
) -> None:
    """As by somebody who clears the state folder."""
    jobs = program()
    jobs.start_execute()
    asked.close()
    shutil.rmtree(tmp_path / "jobs")
    jobs.note_running()
    jobs.end_execute(None)
    assert "is not kept" in caplog.text or not (tmp_path / "jobs").exists()


def asked_job(asked: EmbeddedClient, workflow: str) -> Job:
    return {each.name: each.jobs[-1] for each in workflows(asked)}[workflow]


def _start(jobs: JobClient, ended: list[Exception]) -> None:
    try:
        jobs.start_execute()
    except WaferStreamError as error:
        ended.append(error)


def _wait_for_reason(asked: EmbeddedClient, count: int = 2) -> list[Workflow]:
    """Wait until the last of some workflows says why it waits; return all in order of age."""
    while True:
        found = sorted(workflows(asked), key=lambda each: each.submitted_s)
        if len(found) == count and found[-1].reason:
            return found
