"""Traces that Perfetto can read."""

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

from timing.timeline import Occupancy
from timing.trace import write_trace
from wsc.core.role import Interval


def written(path: Path, *args: Any) -> list[dict[str, Any]]:
    write_trace(path, *args)
    events: list[dict[str, Any]] = json.loads(path.read_text())["traceEvents"]
    return events


def test_both_clocks_are_processes_with_a_thread_per_row(tmp_path: Path) -> None:
    """Names of processes and threads are given as metadata, bars carry microseconds."""
    events = written(
        tmp_path / "trace.json",
        [Occupancy("CS wafer", "0 forward", 1_000_000, 3_500_001)],
        {"csx-0": [Interval("compute", 5_000, 7_000, step=3, detail="layer 0")]},
    )
    names = [e["args"]["name"] for e in events if e["ph"] == "M"]
    assert names == ["emulated", "CS wafer", "measured", "csx-0"]
    emulated, measured = (e for e in events if e["ph"] == "X")
    assert (emulated["pid"], emulated["ts"], emulated["dur"]) == (1, 0, 2.500001)
    assert emulated["name"] == "0 forward"
    assert (measured["pid"], measured["ts"], measured["dur"]) == (2, 0, 2)
    assert measured["args"] == {"step": 3, "detail": "layer 0"}


def test_activities_side_by_side_get_threads_of_their_own(tmp_path: Path) -> None:
    """Bars of one thread never overlap, and no more threads are used than needed."""
    lanes = [(0, 10), (5, 12), (10, 20), (12, 15)]
    intervals = [Interval("compute", start, end, step=1) for start, end in lanes]
    events = written(tmp_path / "trace.json", [], {"csx-0": intervals})
    threads: dict[int, list[tuple[float, float]]] = {}
    for event in events:
        if event["ph"] == "X":
            end = event["ts"] + event["dur"]
            threads.setdefault(event["tid"], []).append((event["ts"], end))
    assert len(threads) == 2
    for spans in threads.values():
        assert all(a[1] <= b[0] + 1e-9 for a, b in pairwise(spans))


def test_a_clock_that_nothing_ran_by_has_no_process(tmp_path: Path) -> None:
    """A simulation measures nothing; a reader looks for no rows that are not there."""
    events = written(tmp_path / "trace.json", [Occupancy("CS wafer", "0 forward", 0, 1)], {})
    assert {event["pid"] for event in events} == {1}


def test_a_trace_without_activities_is_still_a_trace(tmp_path: Path) -> None:
    """A viewer opens it and shows nothing."""
    assert written(tmp_path / "trace.json", [], {}) == []
