"""What the manager refuses: to whom, of whom, and what could never run."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.errors import raises
from tests.support.management.appliance import ANN, BOB, ROOT, Appliance
from waferstream.core.errors import (
    ClusterJobScheduleError,
    ConfigError,
    RequestRefused,
)
from waferstream.management.model import event
from waferstream.management.model.inventory import QueueSpec, Session, System
from waferstream.management.model.job import Phase
from waferstream.management.model.operations import (
    Caller,
    Cancel,
    DeleteSession,
    Label,
    ListWorkflows,
    NoteFact,
    PutSession,
    ReadCluster,
    ReadEvents,
    ReadWorkflow,
    SetPriority,
)
from waferstream.management.model.workflow import (
    Prediction,
    Process,
    Progress,
    Stage,
)


def test_what_never_fits_is_refused(appliance: Appliance) -> None:
    with raises(ClusterJobScheduleError, "more-systems-than-cluster"):
        appliance.submit(num_csx=3)
    with raises(ConfigError, "min-above-num-csx"):
        appliance.submit(num_csx=1, min_num_csx=2)
    with raises(ConfigError, "unknown-session") as refused:
        appliance.submit(session="team")
    assert "get sessions" in (refused.value.remedy or "")
    with raises(ConfigError, "package-not-uploaded"):
        appliance.submit(package="0" * 64)
    with raises(ConfigError, "not-allowed"):
        appliance.submit(words=("--params", "p.yaml", "--model_dir=/etc"))
    with raises(RequestRefused, "priority-forbidden"):
        appliance.submit(priority=50)


@pytest.mark.parametrize(
    "fields", [{"is_queued": False}, {"process": Process(host="h", pid=1, started_ticks=1)}]
)
def test_submitted_workflow_passes_by_no_queue(
    appliance: Appliance, fields: dict[str, object]
) -> None:
    """It would get the systems of any session, or stay for ever, as nobody runs it."""
    with raises(ConfigError, "not-allowed"):
        appliance.submit(ANN, 2, **fields)


def test_sessions_set_systems_aside(appliance: Appliance) -> None:
    session = Session(name="team", systems=1, groups=1, users=("ml",))
    with raises(RequestRefused, "role-forbids"):
        appliance.manager.do(ANN, PutSession(session=session))
    appliance.manager.do(ROOT, PutSession(session=session))
    with raises(RequestRefused, "session-forbidden"):
        appliance.submit(BOB, num_csx=1, session="team")
    with raises(ClusterJobScheduleError, "more-systems-than-cluster"):
        appliance.submit(ANN, num_csx=2, session="team")
    own = appliance.submit(ANN, num_csx=1, session="team")
    appliance.turn()
    assert appliance.read(own).stage is Stage.RUNNING
    view = appliance.manager.do(BOB, ReadCluster())
    assert set(view.holders.values()) == {own.name}


def test_each_session_compiles_in_its_own_slots(appliance: Appliance) -> None:
    with appliance.store.change() as changes:
        changes.put_inventory(QueueSpec(systems=2, memoryx_groups=2).inventory())
    appliance.manager.do(ROOT, PutSession(session=Session(name="team", systems=1, users=("ml",))))
    for session in ("default", "team"):
        appliance.submit(ANN, num_csx=1, priority=199, session=session)
    appliance.turn()
    appliance.submit(ANN, num_csx=1, priority=199)
    compiling, waiting = (appliance.submit(ANN, num_csx=1, session="team") for _ in range(2))
    appliance.turn()
    appliance.turn()
    stages = sorted(appliance.read(each).stage for each in (compiling, waiting))
    assert stages == [Stage.COMPILING, Stage.WAITING]


def test_workflows_of_a_deleted_session_are_in_the_default_one(appliance: Appliance) -> None:
    """The running one keeps its group for itself, and those that wait start one day."""
    appliance.manager.do(ROOT, PutSession(session=Session(name="team", systems=1, users=("ml",))))
    runs = appliance.submit(num_csx=1, session="team")
    appliance.turn()
    waits = appliance.submit(num_csx=1, session="team", words=("serve", "m"))
    appliance.manager.do(ROOT, DeleteSession(name="team"))
    appliance.turn()
    assert appliance.read(runs).stage is Stage.RUNNING
    assert appliance.read(waits).stage is Stage.WAITING  # there is one group
    appliance.end(runs)
    assert appliance.read(waits).stage is Stage.RUNNING


def test_others_may_read_but_not_lead(appliance: Appliance) -> None:
    workflow = appliance.submit()
    assert appliance.manager.do(BOB, ReadWorkflow(name=workflow.name)).user == "ann"
    for operation in (
        Cancel(name=workflow.name),
        Label(name=workflow.name, labels={"a": "1"}),
        SetPriority(name=workflow.name, priority=199),
    ):
        with raises(RequestRefused, "not-your-workflow"):
            appliance.manager.do(BOB, operation)
    mate = Caller(user="cleo", groups=("ml", "ops"))
    label = Label(name=workflow.jobs[0].name, labels={"a": "1"})
    assert appliance.manager.do(mate, label).submission.labels == {"a": "1"}
    other = Caller(user="x", role="run", workflow="wflow-" + "0" * 22)
    with raises(RequestRefused, "not-your-workflow"):
        fact = event.Progressed(progress=Progress(step=1, total_steps=2))
        appliance.manager.do(other, NoteFact(name=workflow.name, fact=fact))


def test_private_parts_of_a_workflow_are_for_its_owners(appliance: Appliance) -> None:
    """Webhooks are secrets, and who has the digest of a package could have its files unpacked."""
    secret = {"slack": ["https://hooks.slack.com/services/SECRET"]}
    words = ("--params", "p.yaml", "--note", "SECRET")
    workflow = appliance.submit(words=words, notifications=[secret])
    for caller, is_told in ((ANN, True), (ROOT, True), (BOB, False)):
        told = (
            appliance.manager.do(caller, ListWorkflows()),
            appliance.manager.do(caller, ReadWorkflow(name=workflow.name)),
            appliance.manager.do(caller, ReadEvents()),
        )
        assert [("SECRET" in str(each)) for each in told] == 3 * [is_told]


def test_long_labels_are_refused_and_leave_the_workflow_as_it_was(appliance: Appliance) -> None:
    """Every list of every user carries them."""
    long = {f"label-{number}": 100 * "x" for number in range(1000)}
    with raises(ConfigError, "submission-too-large"):
        appliance.submit(labels=long)
    workflow = appliance.submit(labels={"team": "a"})
    with raises(ConfigError, "submission-too-large"):
        appliance.manager.do(ANN, Label(name=workflow.name, labels={**long}))
    assert appliance.read(workflow).submission.labels == {"team": "a"}


def test_run_tells_only_of_itself(appliance: Appliance) -> None:
    """Its token gives it neither systems nor a priority nor an end."""
    first = appliance.submit()
    appliance.turn()
    second = appliance.submit(BOB)
    placement = appliance.read(first).placement
    assert placement is not None
    for fact in (
        event.Placed(placement=placement),
        event.Prioritized(priority=0),
        event.Ended(result=Phase.SUCCEEDED),
    ):
        with raises(RequestRefused, "role-forbids"):
            appliance.say(second, fact)
    assert appliance.read(second).placement is None


@pytest.mark.parametrize("seconds", [{1: 0.0, 2: 0.0}, {0: 1.0}, {1: -1.0, 2: 3.0}])
def test_impossible_prediction_is_refused(seconds: dict[int, float]) -> None:
    """The schedule divides by it, and would decide for nobody any more."""
    with raises(ConfigError, "out-of-range"):
        Prediction(seconds=seconds)


def test_unknown_name_is_an_error(appliance: Appliance) -> None:
    with raises(ConfigError, "unknown-job"):
        appliance.manager.do(ANN, ReadWorkflow(name="wsjob-none"))


def test_user_whose_files_fill_the_disk_is_refused(tmp_path: Path) -> None:
    appliance = Appliance(tmp_path, most_bytes=1000)
    workflow = appliance.submit()
    appliance.turn()
    (tmp_path / "workflows" / workflow.name / "model_dir" / "big").write_bytes(bytes(2000))
    with raises(RequestRefused, "disk-quota-exceeded"):
        appliance.submit()
    assert appliance.submit(BOB).user == "bob"
    appliance.store.close()


def test_job_runs_on_systems_of_one_kind(tmp_path: Path) -> None:
    appliance = Appliance(tmp_path)
    older = QueueSpec(systems=2).inventory("CS-2")
    newer = tuple(System(name=f"new-{index}", kind="CS-3") for index in range(3))
    with appliance.store.change() as changes:
        changes.put_inventory(older.model_copy(update={"systems": (*older.systems, *newer)}))
    with raises(ClusterJobScheduleError, "more-systems-than-cluster"):
        appliance.submit(num_csx=4)
    workflow = appliance.submit(num_csx=3)
    appliance.turn()
    placed = appliance.read(workflow).placement
    assert placed is not None
    assert placed.systems == ("new-0", "new-1", "new-2")
    appliance.store.close()
