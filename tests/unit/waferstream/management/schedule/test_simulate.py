"""Whole schedules on the emulated clock: nothing is given twice, nobody waits for ever."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from waferstream.management.schedule.actions import Action, Pause, Resize, Start, Wait
from waferstream.management.schedule.decide import decide
from waferstream.management.schedule.simulate import Run, simulate
from waferstream.management.schedule.state import Inventory, Job, RunTime, Session, System

SYSTEMS = (
    *(System(f"three-{number}", "CS-3") for number in range(6)),
    *(System(f"two-{number}", "CS-2") for number in range(3)),
)
INVENTORY = Inventory(
    (
        Session("a", SYSTEMS[:7], ("a0", "a1", "a2"), compile_slots=2),
        Session("b", SYSTEMS[7:], ("b0",), compile_slots=1),
    )
)
KINDS = {"a": ("CS-3", "CS-2"), "b": ("CS-2",)}
HOUR_S = 3600.0


@st.composite
def jobs(draw: st.DrawFn) -> Job:
    """Return a job that fits somewhere in its session."""
    session = draw(st.sampled_from("ab"))
    kinds = draw(st.lists(st.sampled_from(KINDS[session]), min_size=1, unique=True))
    most = draw(st.integers(1, 8))
    largest = {("a", "CS-3"): 6, ("a", "CS-2"): 1, ("b", "CS-2"): 2}
    least = min(most, max(largest[session, kind] for kind in kinds))
    run_s = draw(st.floats(1.0, 48 * HOUR_S))
    return Job(
        name="",
        user=draw(st.sampled_from(("ann", "bob"))),
        submitted_s=draw(st.floats(0.0, 24 * HOUR_S)),
        run_times={kind: RunTime(((most, run_s),)) for kind in kinds},
        num_csx=most,
        min_num_csx=draw(st.integers(1, least)),
        session=session,
        priority=draw(st.sampled_from((99, 199, 299, 399))),
        compiles=draw(st.integers(0, 5)) == 0,
        resize_s=draw(st.sampled_from((0.0, 350.0, float("inf")))),
    )


class Watched:
    """``decide``, whose actions are checked."""

    def __call__(
        self, now_s: float, inventory: Inventory, jobs: Sequence[Job], *rest: Any
    ) -> list[Action]:
        actions = decide(now_s, inventory, jobs, *rest)
        held = {job.name: (job.holds, job.group) for job in jobs}
        for action in actions:
            match action:
                case Start():
                    assert held[action.job] == ((), None)
                    held[action.job] = (action.systems, action.group)
                case Resize():
                    assert set(action.systems) != set(held[action.job][0])
                    held[action.job] = (action.systems, held[action.job][1])
                case Pause():
                    held[action.job] = ((), None)
        named = Counter(action.job for action in actions if not isinstance(action, Wait))
        assert not named or max(named.values()) == 1
        self.assert_allowed(jobs, held)
        return actions

    @staticmethod
    def assert_allowed(
        jobs: Sequence[Job], held: dict[str, tuple[tuple[str, ...], str | None]]
    ) -> None:
        """Assert that no system or group is given twice, and each where it may be."""
        systems = Counter(name for names, _ in held.values() for name in names)
        assert not systems or max(systems.values()) == 1
        sessions = {session.name: session for session in INVENTORY.sessions}
        kinds = {system.name: system.kind for system in SYSTEMS}
        groups = Counter((job.session, held[job.name][1]) for job in jobs)
        for job in jobs:
            names, group = held[job.name]
            if group is None or job.compiles:
                continue
            assert groups[job.session, group] == 1
            assert group in sessions[job.session].groups
            assert job.min_num_csx <= len(names) <= job.num_csx
            assert {*names} <= {system.name for system in sessions[job.session].systems}
            assert len({kinds[name] for name in names} & job.run_times.keys()) == 1


def named(found: Sequence[Job]) -> list[Job]:
    """Return jobs with names."""
    return [Job(**{**_fields(job), "name": f"job-{number}"}) for number, job in enumerate(found)]


def _fields(job: Job) -> dict[str, Any]:
    return {name: getattr(job, name) for name in Job.__dataclass_fields__}


def done_share(run: Run) -> float:
    """Return the work of all pieces of a run, as a share of the whole; resizes cost none here."""
    run_time = run.job.run_times[run.kind]
    return sum(
        (piece.ends_s - piece.starts_s) / run_time.seconds(len(piece.systems))
        for piece in run.pieces
    )


@settings(max_examples=60)
@given(st.lists(jobs(), min_size=1, max_size=25))
def test_every_job_ends_and_nothing_is_given_twice(found: list[Job]) -> None:
    runs = simulate(INVENTORY, named(found), decide=Watched())
    for run in runs:
        assert run.job.submitted_s <= run.started_s < run.ended_s < float("inf")
        assert run.job.left == 0.0
        assert run.waited_s >= run.started_s - run.job.submitted_s


@settings(max_examples=20)
@given(st.lists(jobs(), min_size=1, max_size=10))
def test_a_decision_depends_on_its_arguments_alone(found: list[Job]) -> None:
    once, again = (simulate(INVENTORY, named(found)) for _ in range(2))
    assert once == again


def test_a_job_of_least_priority_starts_soon_after_the_bound() -> None:
    crowd = [
        Job(f"p1-{number}", "ann", 600.0 * number, {"CS-3": RunTime(((1, 1800.0),))}, priority=199)
        for number in range(300)
    ]
    inventory = Inventory((Session("", (System("s0"),), ("g0",)),))
    starved = Job("p3", "bob", 1.0, {"CS-3": RunTime(((1, HOUR_S),))}, priority=399)
    *_, run = simulate(inventory, [*crowd, starved])
    assert 11 * HOUR_S < run.started_s < 15 * HOUR_S


def test_resizes_cost_time_and_lose_no_work() -> None:
    run_times = {"CS-3": RunTime(((8, 10 * HOUR_S),))}
    free = Job("free", "ann", 0.0, run_times, num_csx=8, resize_s=0.0)
    other = Job("other", "bob", HOUR_S, run_times, num_csx=8)
    named_systems = tuple(System(f"s{number}") for number in range(8))
    inventory = Inventory((Session("", named_systems, ("g0", "g1")),))
    runs = simulate(inventory, [free, other])
    assert runs[0].resizes > 0
    assert abs(done_share(runs[0]) - 1.0) < 1e-6
    assert done_share(runs[1]) >= 1.0 - 1e-6


def test_waits_are_told_to_those_that_come() -> None:
    told: list[Wait] = []

    def decide_and_note(*arguments: Any) -> list[Action]:
        actions = decide(*arguments)
        told.extend(action for action in actions if isinstance(action, Wait))
        return actions

    stiff = [
        Job(
            f"job-{number}",
            "ann",
            float(number),
            {"CS-3": RunTime(((1, HOUR_S),))},
            resize_s=float("inf"),
        )
        for number in range(3)
    ]
    inventory = Inventory((Session("", (System("s0"),), ("g0",)),))
    runs = simulate(inventory, stiff, decide=decide_and_note)
    assert [run.started_s for run in runs] == pytest.approx([0.0, HOUR_S, 2 * HOUR_S])
    assert next(wait.expected.start_s for wait in told if wait.expected) == HOUR_S
