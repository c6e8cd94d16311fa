"""Decisions: who starts, where, at whose cost, and what the others are told."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import pytest

from waferstream.management.schedule.actions import Action, Pause, Resize, Start, Wait
from waferstream.management.schedule.decide import decide
from waferstream.management.schedule.state import (
    Inventory,
    Job,
    Rules,
    RunTime,
    Session,
    System,
    Usage,
)

HOUR_S = 3600.0
DAY_S = 24 * HOUR_S


def inventory(systems: int = 8, groups: int = 4, compile_slots: int = 1) -> Inventory:
    """Return one session."""
    named = tuple(System(f"s{number}") for number in range(systems))
    session = Session("", named, tuple(f"g{number}" for number in range(groups)), compile_slots)
    return Inventory((session,))


def job(name: str, run_s: float = HOUR_S, csx: int = 4, least: int | None = None) -> Job:
    """Return a job that waits since 0; it does not breathe unless ``least`` is stated."""
    run_times = {"CS-3": RunTime(((csx, run_s),))}
    return Job(name, "ann", 0.0, run_times, num_csx=csx, min_num_csx=least or csx)


def running(waiting: Job, *systems: int, group: str = "g0", kind: str = "s") -> Job:
    """Return a job on systems of the inventory since 0."""
    return replace(waiting, holds=tuple(f"{kind}{each}" for each in systems), group=group)


def decided(
    jobs: list[Job], now_s: float = 60.0, *, on: Inventory | None = None, usage: Usage | None = None
) -> dict[str, Action]:
    """Return the first action of each job that has one."""
    actions = decide(now_s, on or inventory(), jobs, usage or Usage())
    return {action.job: action for action in reversed(actions)}


def test_an_idle_appliance_gives_a_job_all_that_it_asks_for() -> None:
    assert decided([job("a", csx=8, least=1)]) == {
        "a": Start("a", tuple(f"s{number}" for number in range(8)), "g0")
    }


def test_smaller_numbers_of_priority_come_first_whatever_the_length() -> None:
    urgent = replace(job("urgent", run_s=DAY_S, csx=8), priority=199)
    actions = decided([job("short", run_s=60.0, csx=8), urgent])
    assert isinstance(actions["urgent"], Start)
    assert isinstance(actions["short"], Wait)


def test_a_user_who_had_much_waits_behind_one_who_had_little() -> None:
    other = replace(job("other", run_s=1.5 * HOUR_S, csx=8), user="bob")
    usage = Usage(0.0, {"ann": 3 * DAY_S, "bob": DAY_S, "carl": 0.0})
    actions = decided([job("mine", csx=8), other], usage=usage)
    assert isinstance(actions["other"], Start)
    assert isinstance(actions["mine"], Wait)


def test_a_short_job_is_filled_in_if_it_does_not_delay_the_first() -> None:
    holder = running(job("holder", run_s=HOUR_S, csx=6), *range(6))
    first = replace(job("first", csx=8), priority=199)
    fits = job("fits", run_s=0.5 * HOUR_S, csx=2)
    delays = job("delays", run_s=2 * HOUR_S, csx=2)
    stiff = [replace(each, resize_s=float("inf")) for each in (holder, first, fits, delays)]
    actions = decided(stiff)
    assert actions["fits"] == Start("fits", ("s6", "s7"), "g1")
    assert isinstance(actions["first"], Wait)
    assert isinstance(actions["delays"], Wait)


def test_past_the_bound_nothing_overtakes_a_job() -> None:
    old = replace(job("old", run_s=DAY_S, csx=8), priority=399)
    new = replace(job("new", csx=1), priority=0, submitted_s=13 * HOUR_S, waits_since_s=13 * HOUR_S)
    actions = decided([new, old], now_s=13 * HOUR_S)
    assert isinstance(actions["old"], Start)
    assert isinstance(actions["new"], Wait)


def test_a_long_job_shrinks_for_one_that_would_wait_long() -> None:
    long = running(job("long", run_s=DAY_S, csx=8, least=2), *range(8))
    actions = decided([long, job("short", csx=2)])
    resize, start = actions["long"], actions["short"]
    assert isinstance(resize, Resize)
    assert isinstance(start, Start)
    assert resize.systems == tuple(f"s{number}" for number in range(len(resize.systems)))
    assert not set(resize.systems) & set(start.systems)
    assert start.group == "g1"


def test_a_job_about_to_end_does_not_shrink() -> None:
    long = replace(running(job("long", run_s=DAY_S, csx=8, least=2), *range(8)), left=0.002)
    assert list(decided([long, job("short", csx=2)])) == ["short"]
    assert isinstance(decided([long, job("short", csx=2)])["short"], Wait)


def test_a_job_grows_into_idle_systems_if_that_saves_more_than_it_costs() -> None:
    long = running(job("long", run_s=DAY_S, csx=8, least=2), 0, 1)
    assert decided([long]) == {"long": Resize("long", tuple(f"s{number}" for number in range(8)))}
    assert decided([replace(long, left=0.004)]) == {}


def test_a_job_is_left_alone_while_a_resize_is_under_way() -> None:
    long = running(job("long", run_s=DAY_S, csx=8, least=2), 0, 1)
    assert decided([replace(long, ready_s=100.0)], now_s=99.0) == {}


def test_a_lower_priority_is_paused_for_a_higher_one() -> None:
    low = replace(running(job("low", csx=8), *range(8)), priority=399)
    high = replace(job("high", run_s=DAY_S, csx=8), priority=199)
    actions = decided([low, high])
    assert actions["low"] == Pause("low", "paused for high")
    assert actions["high"] == Start("high", tuple(f"s{number}" for number in range(8)), "g0")
    assert isinstance(decided([replace(high, priority=399), low])["high"], Wait)


def test_a_group_takes_one_training() -> None:
    holder = running(job("holder", csx=1), 0)
    actions = decided([holder, job("next", csx=1)], on=inventory(groups=1))
    wait = actions["next"]
    assert isinstance(wait, Wait)
    assert wait.reason == "all MemoryX groups are in use (1): holder"
    assert wait.sooner == ("the end of holder",)
    assert wait.expected is not None
    assert wait.expected.start_s == 60.0 + HOUR_S


def test_a_compile_runs_beside_trainings_in_a_slot_of_its_own() -> None:
    holder = running(job("holder", csx=8), *range(8))
    first, second = (replace(job(name), compiles=True) for name in ("first", "second"))
    actions = decided([holder, first, second])
    assert actions["first"] == Start("first", (), "compile-0")
    assert isinstance(actions["second"], Wait)


def test_jobs_see_only_the_systems_of_their_session() -> None:
    sessions = tuple(Session(name, (System(f"{name}0"),), (f"group-{name}",)) for name in "xy")
    mine = replace(job("mine", csx=1), session="y")
    assert decided([mine], on=Inventory(sessions)) == {"mine": Start("mine", ("y0",), "group-y")}


def test_a_job_runs_on_one_kind_of_system() -> None:
    systems = (*(System(f"two{each}", "CS-2") for each in range(2)), System("three0", "CS-3"))
    session = Inventory((Session("", systems, ("g0", "g1")),))
    run_times = {kind: RunTime(((2, HOUR_S),)) for kind in ("CS-3", "CS-2")}
    either = replace(job("either", csx=2), run_times=run_times)
    assert decided([either], on=session) == {"either": Start("either", ("two0", "two1"), "g0")}
    wait = decided([job("large", csx=2)], on=session)["large"]
    assert isinstance(wait, Wait)
    assert wait.expected is None
    assert wait.sooner == ("min_num_csx of at most 1",)


def test_a_system_that_another_session_still_uses_is_not_given_away() -> None:
    session = Session("x", (System("s0"), System("s1")), ("g1",))
    other = Session("", (System("s2"),), ("g0",))
    holder = running(job("holder", csx=1), 0)
    mine = replace(job("mine", csx=1), session="x")
    assert decided([holder, mine], on=Inventory((session, other))) == {
        "mine": Start("mine", ("s1",), "g1")
    }


@pytest.mark.parametrize("systems", [(System("s1"),), ()])
def test_a_drained_system_is_not_given_to_others(systems: tuple[System, ...]) -> None:
    """Who holds one stays as it is until it ends, whoever waits."""
    left = Inventory((Session("", systems, ("g0", "g1")),))
    holder = replace(running(job("holder", csx=2, least=1), 0, 1), priority=399)
    urgent = replace(job("urgent", run_s=60.0, csx=2), priority=0)
    found = decided([replace(holder, resize_s=1.0), urgent], now_s=2 * HOUR_S, on=left)
    assert isinstance(found.pop("urgent"), Wait)
    assert not found


def test_a_drained_group_leaves_the_others_free() -> None:
    left = Inventory((Session("", (System("s0"), System("s1")), ("g1",)),))
    found = decided([running(job("holder", csx=1), 0), job("mine", csx=1)], on=left)
    assert found == {"mine": Start("mine", ("s1",), "g1")}


def test_a_job_whose_systems_another_one_has_yet_to_leave_is_not_paused() -> None:
    two = inventory(systems=2, groups=1)
    leaves = replace(running(job("leaves", csx=1), 0), resize_s=inf)
    comes = replace(running(job("comes", csx=1), 0), priority=399, resize_s=1.0)
    urgent = replace(job("urgent", csx=2, least=1), priority=0)
    found = decided([leaves, comes, urgent], now_s=2 * HOUR_S, on=two)
    assert isinstance(found.pop("urgent"), Wait)
    assert not found


def test_a_run_time_between_two_sizes_follows_a_power_law() -> None:
    run_time = RunTime(((1, 800.0), (4, 200.0)))
    assert [round(run_time.seconds(size)) for size in (1, 2, 4, 8)] == [800, 400, 200, 100]


def test_rules_have_the_bound_of_the_figures() -> None:
    assert Rules().bound_s == 12 * HOUR_S
