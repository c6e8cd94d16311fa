"""The manager: what it makes of what users ask for, and of the ends of processes."""

from __future__ import annotations

import zipfile

import pytest

from tests.support.errors import raises
from tests.support.management.appliance import ANN, BOB, ROOT, Appliance
from waferstream.core.errors import (
    ClusterJobInitError,
    ConfigError,
)
from waferstream.management.launch.launcher import ASKED, KILLED, Launch
from waferstream.management.manager.launches import MOST_LOST
from waferstream.management.model import event
from waferstream.management.model.inventory import QueueSpec
from waferstream.management.model.job import Phase
from waferstream.management.model.operations import (
    Beat,
    Cancel,
    Explain,
    Label,
    ListWorkflows,
    ReadEvents,
    Submit,
)
from waferstream.management.model.workflow import (
    Prediction,
    Progress,
    Stage,
)


def test_workflow_runs_from_submission_to_success(appliance: Appliance) -> None:
    workflow = appliance.submit()
    appliance.turn()
    placed = appliance.read(workflow)
    assert placed.stage is Stage.RUNNING
    assert placed.placement is not None
    assert len(placed.placement.systems) == 2
    (launch,) = appliance.launcher.launched.values()
    assert launch.words[-6:-2] == ("--params", "p.yaml", "--num_csx", "2")
    appliance.end(workflow)
    ended = appliance.read(workflow)
    assert (ended.stage, ended.result, ended.placement) == (Stage.ENDED, Phase.SUCCEEDED, None)
    assert [job.phase for job in ended.jobs] == [Phase.SUCCEEDED]
    assert (placed.last_placement, ended.last_placement) == (placed.placement, placed.placement)
    assert "SUCCEEDED" in appliance.manager.do(ANN, Explain(name=ended.name)).reason
    assert ended.used_system_s == 2.0
    assert appliance.launcher.states() == {}


def test_second_submission_of_a_name_changes_nothing(appliance: Appliance) -> None:
    workflow = appliance.submit()
    again = appliance.manager.do(ANN, Submit(name=workflow.name, submission=workflow.submission))
    assert again == appliance.read(workflow)
    assert len(appliance.manager.do(ANN, ListWorkflows())) == 1


def test_reason_follows_other_jobs_without_an_event_for_each(appliance: Appliance) -> None:
    first = appliance.submit()
    appliance.turn()
    waiting = []
    for _ in range(2):
        workflow = appliance.submit()
        waiting.append(workflow)
        appliance.turn()
        appliance.say(workflow, event.Predicted(prediction=Prediction(seconds={1: 9e4, 2: 5e4})))
        appliance.end(workflow)
    second, third = waiting
    appliance.turn()
    before = appliance.events(third, "waits")
    assert first.name in appliance.read(third).reason
    appliance.end(first)
    appliance.turn()
    assert appliance.read(second).stage is Stage.RUNNING
    assert second.name in appliance.read(third).reason
    assert appliance.events(third, "waits") == before


def test_waiting_workflow_compiles_and_says_why_it_waits(appliance: Appliance) -> None:
    first = appliance.submit()
    appliance.turn()
    second = appliance.submit(BOB)
    appliance.turn()
    assert appliance.read(second).stage is Stage.COMPILING
    assert "--compile_only" in appliance.launcher.launched[f"{second.name}-1"].words
    appliance.say(second, event.Predicted(prediction=Prediction(seconds={1: 9e4, 2: 5e4})))
    appliance.end(second)
    appliance.turn()
    told = appliance.manager.do(BOB, Explain(name=second.name))
    assert told.place == 1
    assert told.reason
    assert appliance.read(second).reason == told.reason
    appliance.end(first)
    appliance.turn()
    assert appliance.read(second).stage is Stage.RUNNING


def test_service_runs_from_its_placement_on(appliance: Appliance) -> None:
    service = appliance.submit(words=("serve", "m"), is_service=True)
    appliance.turn()
    assert [job.phase for job in appliance.read(service).jobs] == [Phase.RUNNING]


def test_lost_process_is_started_again_until_it_gets_no_further(appliance: Appliance) -> None:
    workflow = appliance.submit()
    appliance.turn()
    for _ in range(MOST_LOST):
        appliance.end(workflow, KILLED)
        appliance.turn()
        assert appliance.read(workflow).stage is Stage.RUNNING
    appliance.say(workflow, event.Progressed(progress=Progress(step=1, total_steps=9)))
    appliance.end(workflow, None)
    appliance.turn()
    assert appliance.read(workflow).stage is Stage.RUNNING
    for _ in range(MOST_LOST):
        appliance.end(workflow, KILLED)
        appliance.turn()
    assert appliance.read(workflow).result is Phase.FAILED


@pytest.mark.parametrize("exit_code", [ASKED, KILLED, None])
def test_process_that_somebody_else_has_ended_is_lost(
    appliance: Appliance, exit_code: int | None
) -> None:
    """A host that shuts down sends SIGTERM, too: the workflow is no failure, and goes on."""
    workflow = appliance.submit()
    appliance.turn()
    appliance.end(workflow, exit_code)
    appliance.turn()
    again = appliance.read(workflow)
    assert (again.stage, again.attempt) == (Stage.RUNNING, 2)


def test_run_that_begins_again_and_again_gets_no_further(appliance: Appliance) -> None:
    """Each process tells where it begins, which is no progress."""
    workflow = appliance.submit()
    appliance.turn()
    for _ in range(MOST_LOST + 1):
        appliance.say(workflow, event.Progressed(progress=Progress(step=0, total_steps=9)))
        appliance.end(workflow, KILLED)
        appliance.turn()
    assert appliance.read(workflow).result is Phase.FAILED


def test_failed_run_tells_its_error(appliance: Appliance) -> None:
    workflow = appliance.submit()
    appliance.turn()
    log = next(iter(appliance.launcher.launched.values())).log
    log.write_text("12:00 INFO: begin\n\nError: the batch is too small [batch-too-small]\n")
    appliance.end(workflow, 1)
    assert appliance.read(workflow).reason == "the batch is too small [batch-too-small]"


def test_manager_that_was_killed_before_it_started_a_process_makes_up_for_it(
    appliance: Appliance,
) -> None:
    workflow = appliance.submit()
    launched = appliance.launcher.launched
    appliance.turn()
    launched.clear()
    appliance.launcher.forget(f"{workflow.name}-1")
    appliance.start()
    appliance.turn()
    assert list(launched) == [f"{workflow.name}-1"]
    appliance.turn()
    assert appliance.read(workflow).attempt == 1


def test_workflows_that_end_before_they_could_be_started_hold_nothing(
    appliance: Appliance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One waits for the systems that the other has yet to leave."""

    def start(_launch: Launch) -> None:
        raise ClusterJobInitError("Ray does not answer", code="ray-jobs-refused")

    with monkeypatch.context() as down:
        down.setattr(appliance.launcher, "start", start)
        long = appliance.submit(priority=399)
        with raises(ClusterJobInitError, "ray-jobs-refused"):
            appliance.turn()
        appliance.say(long, event.Predicted(prediction=Prediction(seconds={2: 90_000.0})))
        urgent = appliance.submit(ROOT, priority=0)
        appliance.turn(4000.0)
        assert appliance.read(long).stage is Stage.ENDING
        assert appliance.read(urgent).stage is Stage.RUNNING
        appliance.manager.do(ANN, Cancel(name=long.name))
        appliance.manager.do(ROOT, Cancel(name=urgent.name))
    appliance.turn()
    for each in (long, urgent):
        assert appliance.read(each).result is Phase.CANCELLED
    assert not appliance.launcher.launched


def test_cancelled_workflow_ends_after_its_process(appliance: Appliance) -> None:
    running = appliance.submit()
    appliance.turn()
    waiting = appliance.submit(BOB, words=("serve", "m"), is_service=True)
    appliance.turn()
    appliance.manager.do(BOB, Cancel(name=waiting.name))
    assert appliance.read(waiting).result is Phase.CANCELLED
    appliance.manager.do(ANN, Cancel(name=running.name))
    appliance.turn()
    assert appliance.launcher.asked == [f"{running.name}-1"]
    assert appliance.read(running).result is None
    appliance.end(running, ASKED)
    assert appliance.read(running).result is Phase.CANCELLED
    for operation in (Cancel(name=running.name), Label(name=running.name, labels={"a": "1"})):
        with raises(ConfigError, "job-has-ended"):
            appliance.manager.do(ANN, operation)


@pytest.mark.parametrize("exit_code", [0, ASKED])
def test_workflow_that_is_cancelled_while_it_compiles_is_cancelled(
    appliance: Appliance, exit_code: int
) -> None:
    """A compile that ends just then is no success of the run."""
    appliance.submit()
    appliance.turn()
    waiting = appliance.submit(BOB)
    appliance.turn()
    assert appliance.read(waiting).stage is Stage.COMPILING
    appliance.manager.do(BOB, Cancel(name=waiting.name))
    appliance.end(waiting, exit_code)
    assert appliance.read(waiting).result is Phase.CANCELLED


def test_higher_priority_pauses_a_run_which_goes_on(appliance: Appliance) -> None:
    long = appliance.submit(priority=399)
    appliance.turn()
    appliance.say(long, event.Predicted(prediction=Prediction(seconds={2: 90_000.0})))
    urgent = appliance.submit(ROOT, priority=0)
    appliance.turn(4000.0)
    appliance.turn(10.0)
    asked = appliance.read(long)
    assert (asked.stage, asked.aim) == (Stage.ENDING, "pause")
    appliance.end(long, ASKED)
    appliance.turn()
    assert appliance.read(urgent).stage is Stage.RUNNING
    assert appliance.read(long).stage is Stage.WAITING
    appliance.end(urgent)
    appliance.turn()
    assert appliance.read(long).stage is Stage.RUNNING
    assert appliance.read(long).attempt == 2


def test_steep_prediction_leaves_the_schedule_to_others(appliance: Appliance) -> None:
    steep = appliance.submit()
    appliance.turn()
    told = Prediction(seconds={2047: 1e12, 2048: 1e-12})
    appliance.say(steep, event.Predicted(prediction=told))
    appliance.submit(BOB, num_csx=1)
    appliance.turn()


def test_kind_that_the_appliance_has_no_more_holds_up_nobody(appliance: Appliance) -> None:
    """Another inventory may come with the next start of the management."""
    with appliance.store.change() as changes:
        changes.put_inventory(QueueSpec(systems=2).inventory("CS-3"))
    stays = appliance.submit(system="CS-3")
    with appliance.store.change() as changes:
        changes.put_inventory(QueueSpec(systems=2).inventory("CS-2"))
    appliance.turn()
    other = appliance.submit(BOB)
    appliance.turn()
    assert appliance.read(other).stage is Stage.RUNNING
    assert appliance.read(stays).reason


def test_package_that_cannot_be_unpacked_holds_up_nobody(appliance: Appliance) -> None:
    uploaded = appliance.manager.upload_path()
    with zipfile.ZipFile(uploaded, "w") as archive:
        archive.writestr("a", "a file")
        archive.writestr("a/b", "and a folder")
    digest = appliance.manager.keep_package(BOB, uploaded)
    broken = appliance.submit(BOB, num_csx=1, priority=199, package=digest)
    appliance.turn()
    whole = appliance.submit()
    appliance.turn()
    ended = appliance.read(broken)
    assert (ended.result, ended.reason) == (
        Phase.FAILED, "the package must be a whole zip file [package-broken]",
    )  # fmt: skip
    assert f"{whole.name}-1" in appliance.launcher.launched


def test_events_tell_all(appliance: Appliance) -> None:
    workflow = appliance.submit()
    appliance.turn()
    appliance.end(workflow)
    events = appliance.manager.do(ANN, ReadEvents(name=workflow.name))
    kinds = [each.fact.kind for each in events]
    assert kinds == ["submitted", "job created", "released", "placed", "ended"]
    assert [each.number for each in events] == sorted(each.number for each in events)


def test_workflow_of_a_vanished_client_is_cancelled(appliance: Appliance) -> None:
    """The time without a manager does not count."""
    workflow = appliance.submit(is_detached=False)
    for _ in range(12):
        appliance.turn(10.0)
        appliance.manager.do(ANN, Beat(name=workflow.name))
    appliance.now_s += 1000.0
    appliance.start()
    appliance.turn(10.0)
    assert appliance.read(workflow).aim is None
    for _ in range(10):
        appliance.turn(10.0)
    assert appliance.read(workflow).aim == "cancel"
    appliance.end(workflow, ASKED)
    assert appliance.read(workflow).reason == "its client has vanished"


@pytest.mark.parametrize("jump_s", [3600.0, -3600.0])
def test_clock_that_is_set_ends_no_workflow(appliance: Appliance, jump_s: float) -> None:
    """The clients of before cannot know; whoever is there beats soon."""
    workflow = appliance.submit(is_detached=False)
    appliance.turn()
    appliance.turn(jump_s)
    for _ in range(12):
        appliance.turn(10.0)
        appliance.manager.do(ANN, Beat(name=workflow.name))
    assert appliance.read(workflow).stage is Stage.RUNNING
