"""Views: the same as their events say, however they came about; damaged ones are typed errors."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import update

from tests.support.errors import raises
from waferstream.core.errors import ConfigError
from waferstream.management.model.event import (
    Asked,
    Ended,
    Event,
    Fact,
    JobCreated,
    JobMoved,
    Labelled,
    Placed,
    Predicted,
    Prioritized,
    Progressed,
    Released,
    Submitted,
    Waits,
    after,
    submitted,
)
from waferstream.management.model.job import Phase
from waferstream.management.model.workflow import (
    Placement,
    Prediction,
    Progress,
    Submission,
    Workflow,
)
from waferstream.management.store import changes, tables
from waferstream.management.store.databases import sqlite_engine
from waferstream.management.store.opening import open_store
from waferstream.management.store.store import Store
from waferstream.management.store.transactions import transaction

_NAMES = (f"wflow-{number}" for number in itertools.count())
_PHASES = st.sampled_from([Phase.QUEUED, Phase.RUNNING])
_PLACEMENT = Placement(systems=("system-0", "system-1"), group="group-0")

FACTS: st.SearchStrategy[Fact] = st.one_of(
    st.builds(Progressed, progress=st.builds(Progress, step=st.integers(0, 9), total_steps=st.just(9))),
    st.builds(Waits, reason=st.sampled_from(["", "systems", "a MemoryX group"])),
    st.builds(Predicted, prediction=st.builds(Prediction, seconds=st.just({1: 2.0, 2: 1.0}))),
    st.builds(JobMoved, job=st.just("wsjob-0"), phase=_PHASES, message=st.text(max_size=3)),
    st.builds(Labelled, labels=st.dictionaries(st.text(max_size=1), st.none() | st.text(max_size=1))),
    st.builds(Prioritized, priority=st.integers(0, 399)),
    st.just(Placed(placement=_PLACEMENT)),
    st.builds(Asked, aim=st.sampled_from(["resize", "pause", "cancel"])),
    st.builds(Released, reason=st.text(max_size=3)),
    st.builds(Ended, result=st.sampled_from([Phase.SUCCEEDED, Phase.CANCELLED])),
)  # fmt: skip


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("views") / "store.db"


@pytest.fixture(scope="module")
def store(place: Path) -> Iterator[Store]:
    store = open_store(place)
    yield store
    store.close()


@pytest.fixture(scope="module")
def another(place: Path, store: Store) -> Iterator[Store]:
    """Return the store as another process has it."""
    another = open_store(place)
    yield another
    another.close()


@pytest.fixture(scope="module", autouse=True)
def few_points() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(changes, "POINTS", 2)
        yield


def rebuilt(events: Iterable[Event]) -> Workflow:
    first, *others = events
    assert isinstance(first.fact, Submitted)
    workflow = submitted(first.workflow, first.time_s, first.fact)
    for event in others:
        workflow = after(workflow, event.fact, event.time_s)
    return workflow


def _of_job(fact: Fact, name: str) -> Fact:
    return fact.model_copy(update={"job": name}) if isinstance(fact, JobMoved) else fact


@given(st.lists(st.tuples(FACTS, st.floats(0, 1e9)), max_size=24))
def test_views_are_those_of_their_events(
    store: Store, another: Store, facts: list[tuple[Fact, float]]
) -> None:
    name = next(_NAMES)
    job = f"wsjob-of-{name}"
    with store.change() as change:
        change.note(name, Submitted(user="a", submission=Submission(num_csx=2)), 0.0)
        view = change.note(name, JobCreated(job=job, of="execute"), 0.0)
        for fact, time_s in facts:
            view = change.note(name, _of_job(fact, job), time_s)
    with another.reading() as views:
        assert views.workflow(name) == view == rebuilt(views.events(name))


def test_damaged_view_is_a_typed_error(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    store = open_store(path)
    with store.change() as change:
        change.note("a", Submitted(user="a", submission=Submission()), 0.0)
    with transaction(sqlite_engine(path), writes=True) as connection:
        connection.execute(update(tables.workflows).values(body='{"name": 1}'))
    with raises(ConfigError, "store-damaged") as caught, store.reading() as views:
        views.workflow("a")
    assert caught.value.where == "name"
    store.close()
