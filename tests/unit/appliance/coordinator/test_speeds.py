"""Shares by measured speed: slower systems take fewer micro-batches, and no bit changes."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from appliance.coordinator.commands import HashWeights, Run
from appliance.coordinator.speeds import STEPS_IN_A_ROW, Shares, Stragglers, dealt_out, speeds_of
from appliance.elaboration.elaborate import ClusterSize
from tests.support.roles.local_machine import train_regression
from tests.support.runs.tiny_run import run_here, write_run
from waferstream.core.program.program import ProgramKind
from waferstream.core.program.schedule import Rounds
from waferstream.core.roles.activities import Interval, Place
from waferstream.core.roles.role import Report
from waferstream.reports.run.summary import SUMMARY_NAME

ROUNDS = Rounds(num_micro_batches=12, num_nodes=4, per_node=3)
PLENTY = 12

LINK = "10.0.0.1 to 10.0.0.2"


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
    alone.do(Run(ProgramKind.TRAIN, 1, 2))
    expected, found = (each.do(Run(ProgramKind.TRAIN, 1, 2)) for each in (equal, shared))
    assert shared.do(HashWeights()) == alone.do(HashWeights())
    assert [result.values for result in found] == [result.values for result in expected]
    assert [result.timing for result in found] == [result.timing for result in expected]


def test_measured_shares_are_those_of_the_next_job() -> None:
    running = train_regression(ClusterSize(3))
    running._shares = Shares(is_measured=True)
    running.do(Run(ProgramKind.TRAIN, 1, 1))
    running._shares.current = (2, 2, 1)
    running.do(Run(ProgramKind.TRAIN, 2, 2))
    expected = train_regression(ClusterSize(1))
    expected.do(Run(ProgramKind.TRAIN, 1, 2))
    assert running.do(HashWeights()) == expected.do(HashWeights())


def reports_of_stragglers(durations: Mapping[str, Sequence[int]]) -> list[Report]:
    """Reports of systems whose kernels took so many nanoseconds in step 1, 2, ..."""
    found = [Report("wgt-0", intervals=[Interval("update", 0, 10**9, Place(step=1))])]
    for system, by_step in durations.items():
        kernels = [
            Interval("compute", 100, 100 + duration, Place(step=step))
            for step, duration in enumerate(by_step, 1)
            for _ in range(1 + (system == "csx-0"))  # which computes twice as many
        ]
        found.append(Report(system, intervals=kernels))
    return found


def test_system_that_stays_slow_is_a_straggler() -> None:
    """From the third slow step on, until it is as fast as the others; also over two jobs."""
    watch = Stragglers(2.0)
    first = {"csx-0": [10, 10, 10], "csx-1": [11, 25, 25], "csx-2": [9, 9, 9]}
    assert watch.take(reports_of_stragglers(first), range(1, 4)) == {}
    second = {"csx-0": [10, 10, 10], "csx-1": [25, 25, 12], "csx-2": [9, 9, 9]}
    expected = {1: ("csx-1",), 2: ("csx-1",)}
    assert STEPS_IN_A_ROW == 3
    assert watch.take(reports_of_stragglers(second), range(1, 4)) == expected


def test_late_step_now_and_then_is_nothing() -> None:
    slow = {"csx-0": [10] * 8, "csx-1": [90, 10, 90, 90, 10, 90, 90, 10]}
    assert Stragglers(2.0).take(reports_of_stragglers(slow), range(1, 9)) == {}


def test_of_two_systems_the_slower_one_is_found() -> None:
    slow = {"csx-0": [10] * 3, "csx-1": [30] * 3}
    assert Stragglers(2.0).take(reports_of_stragglers(slow), range(1, 4)) == {3: ("csx-1",)}


def test_nothing_is_computed_without_a_factor() -> None:
    slow = {"csx-0": [10] * 3, "csx-1": [30] * 3}
    assert Stragglers(None).take(reports_of_stragglers(slow), range(1, 4)) == {}


def test_slow_system_and_slow_link_are_in_log_and_summary(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run of three jobs whose second system computes ten times as long, and waits for a link."""
    take = Stragglers.take

    def slowed(
        watch: Stragglers, found: Sequence[Report], steps: Iterable[int]
    ) -> dict[int, tuple[str, ...]]:
        for report in found:
            factor = 10 if report.role == "csx-1" else 1
            report.link_waits = {LINK: 0.5 * factor}
            report.intervals = [
                replace(each, start_ns=0, end_ns=factor) for each in report.intervals
            ]
        return take(watch, found, steps)

    monkeypatch.setattr(Stragglers, "take", slowed)
    flags = write_run(tmp_path, init__loop={"max_steps": 4}, init__checkpoint={"steps": 2})
    cluster = {"runtime": {"kind": "local", "straggler_factor": 2}}
    (tmp_path / "cluster.yaml").write_text(yaml.safe_dump(cluster))
    code, out, err = run_here([*flags, "--num_csx=2", "--mode=train"], capsys)
    assert code == 0, err
    assert "csx-1 is a straggler" in out + err
    assert f"15.00 seconds for the link {LINK}" in out + err
    summary = json.loads((tmp_path / "model_dir" / SUMMARY_NAME).read_text())
    assert summary["stragglers"] == {"csx-1": 2}
    assert summary["link_waits"] == {LINK: 15.0}
    page = next((tmp_path / "model_dir").rglob("*.html")).read_text()
    assert f"{LINK} for 15.00 s" in page
