"""Shares by measured speed: slower systems take fewer micro-batches, and no bit changes."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.coordinator.commands import HashWeights, Run
from appliance.coordinator.shares import Shares, dealt_out, speeds_of
from appliance.elaboration.elaborate import ClusterSize
from tests.support.roles.local_machine import train_regression
from waferstream.core.program.schedule import Rounds
from waferstream.core.roles.activities import Interval
from waferstream.core.roles.role import Report

ROUNDS = Rounds(num_micro_batches=12, num_nodes=4, per_node=3)
PLENTY = 12


def reports(*kernels_per_s: float) -> list[Report]:
    """What systems report that compute ten kernels, one after the other."""
    found = []
    for index, speed in enumerate(kernels_per_s):
        long_ns = round(1e9 / speed)
        kernels = [
            Interval("compute", start * long_ns, (start + 1) * long_ns) for start in range(10)
        ]
        found.append(Report(f"csx-{index}", intervals=kernels))
    return [*found, Report("br-0")]


def shares_after(*jobs: Sequence[float], most: int = PLENTY) -> tuple[int, ...]:
    shares = Shares(is_measured=True)
    for speeds in jobs:
        shares.note(reports(*speeds), ROUNDS, most)
    return shares.current


def test_half_as_fast_a_system_takes_half_as_many() -> None:
    assert shares_after([2, 2, 1, 1]) == (4, 4, 2, 2)


def test_shares_follow_the_last_job() -> None:
    assert shares_after([2, 2, 1, 1], [1, 1, 1, 1]) == (3, 3, 3, 3)


@pytest.mark.parametrize("speeds", [(1, 1, 1, 1), (1, 1, 1, 0.95)])
def test_noise_moves_nothing(speeds: Sequence[float]) -> None:
    """Nor do speeds count of which a system is missing, or without the option."""
    assert shares_after(speeds) == ()
    assert shares_after(speeds[:3]) == ()
    shares = Shares(is_measured=False)
    shares.note(reports(9, 1, 1, 1), ROUNDS, PLENTY)
    assert shares.current == ()


def test_fast_system_takes_no_more_than_its_memory_holds() -> None:
    assert shares_after([9, 1, 1, 1]) == (9, 1, 1, 1)
    assert shares_after([9, 1, 1, 1], most=6) == (6, 2, 2, 2)


def test_lanes_side_by_side_count_as_speed() -> None:
    """Two kernels at the same time are twice the speed of one after the other."""
    both = [Interval("compute", 0, 100), Interval("compute", 0, 100)]
    waits = [Interval("wait", 0, 1000)]
    found = speeds_of([Report("a", intervals=both + waits), Report("b", intervals=both[:1])])
    assert found["a"] == 2 * found["b"]


@given(
    st.lists(st.floats(0.1, 10), min_size=1, max_size=8),
    st.integers(0, 40),
    st.integers(1, 10),
)
def test_all_micro_batches_are_dealt_out(speeds: list[float], more: int, most: int) -> None:
    """As far as they fit, and everyone has one."""
    count = len(speeds) + more
    shares = dealt_out(count, speeds, most)
    assert sum(shares) == min(count, most * len(speeds))
    assert all(1 <= share <= most for share in shares)


@pytest.mark.parametrize("shares", [(3, 1, 1), (1, 3, 1), (1, 1, 2), (1, 1, 1)])
def test_shares_change_neither_bits_nor_emulated_time(shares: tuple[int, ...]) -> None:
    """Five micro-batches on three systems, in one round or two."""
    alone, shared = train_regression(ClusterSize(1)), train_regression(ClusterSize(3, lanes=2))
    equal = train_regression(ClusterSize(3))
    shared._shares.current = shares
    alone.do(Run("train", 1, 2))
    expected, found = equal.do(Run("train", 1, 2)), shared.do(Run("train", 1, 2))
    assert shared.do(HashWeights()) == alone.do(HashWeights())
    assert [result.values for result in found] == [result.values for result in expected]
    assert [result.timing for result in found] == [result.timing for result in expected]


def test_measured_shares_are_those_of_the_next_job() -> None:
    running = train_regression(ClusterSize(3))
    running._shares = Shares(is_measured=True)
    running.do(Run("train", 1, 1))
    running._shares.current = (2, 2, 1)
    running.do(Run("train", 2, 2))
    expected = train_regression(ClusterSize(1))
    expected.do(Run("train", 1, 2))
    assert running.do(HashWeights()) == expected.do(HashWeights())
