"""Stragglers: systems that compute much slower than the median, for several steps."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from appliance.health.stragglers import STEPS_IN_A_ROW, Stragglers
from tests.support.runs.tiny_run import run_here, write_run
from waferstream.core.roles.activities import Interval, Place
from waferstream.core.roles.role import Report
from waferstream.reports.run.summary import SUMMARY_NAME

LINK = "10.0.0.1 to 10.0.0.2"


def reports(durations: Mapping[str, Sequence[int]]) -> list[Report]:
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
    assert watch.take(reports(first), range(1, 4)) == {}
    second = {"csx-0": [10, 10, 10], "csx-1": [25, 25, 12], "csx-2": [9, 9, 9]}
    expected = {1: ("csx-1",), 2: ("csx-1",)}
    assert STEPS_IN_A_ROW == 3
    assert watch.take(reports(second), range(1, 4)) == expected


def test_late_step_now_and_then_is_nothing() -> None:
    slow = {"csx-0": [10] * 8, "csx-1": [90, 10, 90, 90, 10, 90, 90, 10]}
    assert Stragglers(2.0).take(reports(slow), range(1, 9)) == {}


def test_of_two_systems_the_slower_one_is_found() -> None:
    slow = {"csx-0": [10] * 3, "csx-1": [30] * 3}
    assert Stragglers(2.0).take(reports(slow), range(1, 4)) == {3: ("csx-1",)}


def test_nothing_is_computed_without_a_factor() -> None:
    slow = {"csx-0": [10] * 3, "csx-1": [30] * 3}
    assert Stragglers(None).take(reports(slow), range(1, 4)) == {}


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
