"""The Gantt chart of systems follows from workflows and what is expected of them."""

from __future__ import annotations

from typing import Any

import pytest

from waferstream.management.model.operations import Explanation
from waferstream.management.model.workflow import (
    Placement,
    Progress,
    Stage,
    Submission,
    Tenure,
    Workflow,
)
from waferstream.management.web.gantt import COLORS, WIDTH, Bar, Gantt, colors_of, gantt

NOW_S = 1_800_000_000.0
SYSTEMS = ("system-0", "system-1")


def workflow(name: str, **fields: Any) -> Workflow:
    known = {"user": "ann", "submission": Submission(), "submitted_s": NOW_S - 900} | fields
    return Workflow.model_validate({"name": name, **known})


def placed(*systems: str) -> Placement:
    return Placement(systems=systems, group="group-0")


RUNNING = workflow(
    "running",
    stage=Stage.RUNNING,
    placement=placed("system-0"),
    held_since_s=NOW_S - 300,
    tenures=(Tenure(placement=placed(*SYSTEMS), since_s=NOW_S - 600, until_s=NOW_S - 310),),
    progress=Progress(step=1, total_steps=4, remaining_s=100),
)


def times_of(chart: Gantt, bar: Bar, begin_s: float, end_s: float) -> bool:
    """Whether a bar lies at these times, by the place of now and that of another bar."""
    scale = chart.now_x / 600
    expected = (chart.now_x + begin_s * scale, (end_s - begin_s) * scale)
    return (bar.x, bar.width) == pytest.approx(expected, abs=0.3)


def test_system_shows_what_was_what_is_and_what_is_expected() -> None:
    chart = gantt(SYSTEMS, [RUNNING], [], NOW_S)
    first, second = chart.systems
    assert [bar.kind for bar in first.bars] == ["held", "held", "expected"]
    for bar, times in zip(first.bars, [(-600, -310), (-300, 0), (0, 100)], strict=True):
        assert times_of(chart, bar, *times)
    assert [bar.kind for bar in second.bars] == ["held"]


def test_what_waits_shows_the_interval_of_its_start_and_its_run() -> None:
    wait = Explanation(
        workflow="next", reason="", place=1, start_s=NOW_S + 60, earliest_s=NOW_S + 30,
        latest_s=NOW_S + 120, run_s=50,
    )  # fmt: skip
    chart = gantt(SYSTEMS, [RUNNING, workflow("next")], [wait], NOW_S)
    (lane,) = chart.waiting
    assert (lane.name, lane.workflow) == ("ann", "next")
    run, interval = lane.bars
    assert (run.kind, interval.kind) == ("expected", "uncertain")
    assert times_of(chart, run, 60, 110)
    assert times_of(chart, interval, 30, 120)


def test_start_that_nobody_knows_has_a_lane_without_bars() -> None:
    wait = Explanation(workflow="next", reason="", place=1)
    chart = gantt(SYSTEMS, [workflow("next")], [wait], NOW_S)
    assert chart.waiting[0].bars == ()


def test_bars_stay_inside_of_the_chart() -> None:
    """Also those of a job that holds its systems since last year and goes on until the next one."""
    year_s = 365 * 86400.0
    long = workflow(
        "long",
        stage=Stage.RUNNING,
        placement=placed("system-1"),
        held_since_s=NOW_S - year_s,
        progress=Progress(step=1, total_steps=2, remaining_s=year_s),
    )
    chart = gantt(SYSTEMS, [RUNNING, long], [], NOW_S)
    bars = [bar for lane in chart.systems for bar in lane.bars]
    assert all(bar.x >= 0 and bar.x + bar.width <= WIDTH for bar in bars)
    assert 0 < chart.now_x < WIDTH


def test_nothing_is_a_chart_without_bars() -> None:
    chart = gantt(SYSTEMS, [], [], NOW_S)
    assert [lane.bars for lane in chart.systems] == [(), ()]
    assert 0 < chart.now_x < WIDTH


def test_neighbours_in_time_have_other_colors() -> None:
    found = colors_of(workflow(f"w{i}", submitted_s=NOW_S + i) for i in range(COLORS))
    assert sorted(found.values()) == list(range(COLORS))
