"""What every store does, in a file of SQLite and in a database of PostgreSQL."""

from __future__ import annotations

from tests.support.errors import raises
from waferstream.core.errors import ConfigError
from waferstream.management.model.event import (
    Ended,
    JobCreated,
    Labelled,
    Prioritized,
    Progressed,
    Submitted,
)
from waferstream.management.model.inventory import QueueSpec, Session
from waferstream.management.model.job import Phase
from waferstream.management.model.leader import Leader
from waferstream.management.model.operations import Caller
from waferstream.management.model.workflow import Process, Progress, Submission
from waferstream.management.store.changes import POINTS, Changes
from waferstream.management.store.store import Store

NAME = "wflow-" + "a" * 22
SUBMITTED = Submitted(user="alice", submission=Submission())


def submit(changes: Changes, name: str, *, user: str = "alice", priority: int = 299) -> None:
    changes.note(name, Submitted(user=user, submission=Submission(priority=priority)), 1.0)


def test_workflow_is_found_by_its_name_and_by_its_jobs(store: Store) -> None:
    with store.change() as changes:
        assert changes.note(NAME, SUBMITTED, 1.0).user == "alice"
        noted = changes.note(NAME, JobCreated(job="wsjob-1", of="compile"), 2.0)
    with store.reading() as views:
        assert views.workflow(NAME) == views.workflow("wsjob-1") == noted
        assert views.workflow("wsjob-2") is None


def test_fact_of_an_unknown_workflow_is_refused(store: Store) -> None:
    with raises(ConfigError, "unknown-job"), store.change() as changes:
        changes.note(NAME, Prioritized(priority=1), 1.0)


def test_two_workflows_cannot_have_jobs_of_one_name(store: Store) -> None:
    with store.change() as changes:
        submit(changes, "a")
        submit(changes, "b")
        changes.note("a", JobCreated(job="wsjob-1", of="compile"), 2.0)
    with raises(ConfigError, "name-taken"), store.change() as changes:
        changes.note("b", JobCreated(job="wsjob-1", of="compile"), 2.0)
    with store.reading() as views:
        assert len(views.events("b")) == 1


def test_change_that_raises_leaves_nothing(store: Store) -> None:
    with raises(ConfigError, "unknown-job"), store.change() as changes:
        submit(changes, NAME)
        changes.note("another", Prioritized(priority=1), 2.0)
    assert store.newest_event() == 0
    with store.reading() as views:
        assert views.workflows(unfinished=False) == []


def test_workflows_are_in_the_order_of_priority_and_age(store: Store) -> None:
    with store.change() as changes:
        submit(changes, "late", priority=299)
        submit(changes, "urgent", user="bob", priority=99)
        submit(changes, "ended", priority=1)
        changes.note("late", Labelled(labels={"team": "x"}), 2.0)
        changes.note("ended", Ended(result=Phase.FAILED), 3.0)
    with store.reading() as views:
        assert [each.name for each in views.workflows()] == ["urgent", "late"]
        assert [each.name for each in views.workflows(unfinished=False)] == [
            "ended", "urgent", "late",
        ]  # fmt: skip
        assert [each.name for each in views.workflows(user="bob")] == ["urgent"]
        assert [each.name for each in views.workflows(labels={"team": "x"})] == ["late"]
        assert [each.name for each in views.workflows(limit=1)] == ["urgent"]


def test_changed_priority_changes_the_order(store: Store) -> None:
    with store.change() as changes:
        submit(changes, "a")
        submit(changes, "b")
        changes.note("b", Prioritized(priority=1), 2.0)
        assert [each.name for each in changes.workflows()] == ["b", "a"]


def test_events_are_numbered_and_read_in_order(store: Store) -> None:
    with store.change() as changes:
        submit(changes, "a")
        submit(changes, "b")
        changes.note("a", Prioritized(priority=1), 2.0)
    with store.reading() as views:
        everything = views.events()
        assert [each.workflow for each in everything] == ["a", "b", "a"]
        assert everything[-1].number == store.newest_event()
        assert views.events("a", after=everything[0].number) == [everything[2]]
        assert views.events(limit=2) == everything[:2]


def test_ended_workflow_takes_no_more_events(store: Store) -> None:
    with store.change() as changes:
        submit(changes, NAME)
        ended = changes.note(NAME, Ended(result=Phase.SUCCEEDED), 2.0)
        assert changes.note(NAME, Prioritized(priority=1), 3.0) == ended
        assert len(changes.events(NAME)) == 2


def test_long_progress_is_folded(store: Store) -> None:
    total = 5 * POINTS
    with store.change() as changes:
        submit(changes, NAME)
        for step in range(total):
            changes.note(NAME, Progressed(progress=Progress(step=step, total_steps=total)), 2.0)
        kept = [each.fact for each in changes.events(NAME, limit=10_000)]
    steps = [fact.progress.step for fact in kept if isinstance(fact, Progressed)]
    assert POINTS <= len(steps) <= 2 * POINTS
    assert steps == sorted(steps)
    assert steps[-1] == total - 1
    assert steps[0] < 16


def test_beats_are_those_of_unfinished_workflows(store: Store) -> None:
    with store.change() as changes:
        submit(changes, "a")
        submit(changes, "b")
        changes.beat("a", "run", 1.0)
        changes.beat("a", "run", 2.0)
        changes.beat("a", "client", 3.0)
        changes.beat("b", "run", 4.0)
        changes.note("b", Ended(result=Phase.FAILED), 5.0)
        assert changes.beats("run") == {"a": 2.0}
    assert store.newest_event() == 3


def test_states_of_nodes_survive_another_inventory(store: Store) -> None:
    with store.change() as changes:
        assert changes.inventory() is None
        changes.put_inventory(QueueSpec(systems=2).inventory())
        changes.set_node("system-1", "drained")
        changes.set_node("group-0", "tainted")
        changes.put_inventory(QueueSpec(systems=3).inventory())
        inventory = changes.inventory()
    assert inventory is not None
    assert [each.state for each in inventory.systems] == ["ok", "drained", "ok"]
    assert [each.state for each in inventory.groups] == ["tainted"]
    with raises(ConfigError, "unknown-node"), store.change() as changes:
        changes.set_node("system-9", "ok")


def test_sessions_are_made_resized_and_deleted(store: Store) -> None:
    with store.change() as changes:
        changes.put_session(Session(name="b", systems=1))
        changes.put_session(Session(name="a", systems=1))
        changes.put_session(Session(name="b", systems=2))
        assert [(each.name, each.systems) for each in changes.sessions()] == [("a", 1), ("b", 2)]
        changes.delete_session("a")
        assert [each.name for each in changes.sessions()] == ["b"]
    with raises(ConfigError, "unknown-session"), store.change() as changes:
        changes.delete_session("a")


def test_leader_is_the_last_that_was_put(store: Store) -> None:
    first = Leader(process=Process(host="a", pid=1, started_ticks=1), time_s=1.0)
    with store.change() as changes:
        assert changes.leader() is None
        changes.put_leader(first)
        changes.put_leader(first.model_copy(update={"time_s": 2.0}))
    with store.reading() as views:
        assert views.leader() == first.model_copy(update={"time_s": 2.0})


def test_token_tells_whom_it_is_of_until_it_is_revoked(store: Store) -> None:
    alice = Caller(user="alice", groups=("vision",))
    with store.change() as changes:
        changes.put_user(Caller(user="alice", role="administrator"))
        changes.put_user(alice)
        changes.add_token("1", "alice", 1.0)
        assert changes.users() == [alice]
        assert changes.caller_of("1") == alice
        assert changes.caller_of("2") is None
        assert changes.revoke("alice", 2.0) == 1
        assert changes.caller_of("1") is None


def test_old_workflows_are_forgotten(store: Store) -> None:
    with store.change() as changes:
        for name, ended_s in (("a", 2.0), ("b", 4.0), ("c", None)):
            submit(changes, name)
            if ended_s is not None:
                changes.note(name, Ended(result=Phase.FAILED), ended_s)
        assert list(changes.forget(3.0)) == ["a"]
        assert [each.name for each in changes.workflows(unfinished=False)] == ["b", "c"]
        assert changes.events("a") == []
    assert store.newest_event() > 0
