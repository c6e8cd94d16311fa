"""Repetitions are executed until a state comes back."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import pytest

from waferstream.machine.attribution import Attribution
from waferstream.simulator.periodicity import Effect, Repetitions, Snapshot, run_until_periodic


class Left(NamedTuple):
    """The record of a repetition that left this state."""

    state: tuple[int, ...]


def run(states: Iterable[int], count: int, longest: int = 1) -> tuple[int, int]:
    """Executed repetitions and period, where repetition N leaves the N-th of the states."""
    given = [Left((state,)) for state in states]
    executed, period = run_until_periodic(given.__getitem__, count, longest=longest)
    assert executed == tuple(given[: len(executed)])
    return len(executed), period


@pytest.mark.parametrize(
    ("states", "longest", "found"),
    [
        ([1, 2, 3, 3, 3], 1, (4, 1)),
        ([1, 2, 3, 2, 3], 1, (5, 0)),
        ([1, 2, 3, 2, 3], 2, (4, 2)),
        ([1, 2, 3, 1, 2], 2, (5, 0)),
        ([1, 2, 3, 1, 2], 9, (4, 3)),
        ([1, 1, 1, 1, 1], 9, (2, 1)),
    ],
)
def test_run_until_periodic_finds_the_period(
    states: list[int], longest: int, found: tuple[int, int]
) -> None:
    """It executes up to the repetition whose state came back, within the longest period."""
    assert run(states, 5, longest) == found


@pytest.mark.parametrize("count", [0, 1, 2])
def test_run_until_periodic_executes_no_more_than_there_are(count: int) -> None:
    """The state may come back later than that."""
    assert run([1, 2, 2], count) == (count, 0)


def test_run_until_periodic_asks_whether_a_repetition_may_repeat() -> None:
    """Only of repetitions whose state came back; where it says no, execution goes on."""
    asked: list[int] = []

    def may_repeat(index: int) -> bool:
        asked.append(index)
        return index > 2

    found = run_until_periodic(lambda _: Left(()), 9, may_repeat=may_repeat)
    assert found == Repetitions((Left(()),) * 4, 1)
    assert asked == [1, 2, 3]


def test_effect_between_snapshots_can_be_repeated() -> None:
    """Times and causes add up; the state stays."""
    before = Snapshot(100, (0, 1), Attribution(compute=70, idle=30))
    after = Snapshot(130, (0, 2), Attribution(compute=90, idle=40))
    one = Effect.between(before, after)
    assert one == Effect(30, Attribution(compute=20, idle=10), (0, 2))
    assert one.times(3) == Effect(90, Attribution(compute=60, idle=30), (0, 2))
