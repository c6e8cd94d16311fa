"""Traces that Perfetto can read."""

import json
from pathlib import Path

import pytest

from appliance.faults.strike import full_disk
from tests.support.reports.traces import Trace, read_trace
from waferstream.core.roles.activities import Interval, Place
from waferstream.machine.record import Record, SegmentFacts
from waferstream.machine.trace import Activities, write_trace

US_PS, GB = 10**6, 10**9
BACKWARD = Place("train", 3, 0, "fc1", "backward")


def written(path: Path, activities: Activities) -> Trace:
    write_trace(path, activities)
    return read_trace(path)


def record_of_a_segment() -> Record:
    record = Record()
    record.describe("train", [SegmentFacts("fc1", "backward", 70, 8)])
    record.enter_round("train", 3, 0)
    record.enter_segment(0)
    record.add_sram(US_PS)
    record.add("CS wafer", "compute", US_PS, 3 * US_PS + 1)
    record.add("SwarmX up", "reduce", 3 * US_PS, 4 * US_PS, 1000)
    return record


def test_both_clocks_are_processes_with_a_track_per_row(tmp_path: Path) -> None:
    """Slices carry layer and phase, step, round, bytes and the cause that a wait would have."""
    measured = {"csx-0": [Interval("sum", 5_000, 7_000, BACKWARD, "bucket 4", 12)]}
    trace = written(tmp_path / "trace.json", Activities(record_of_a_segment(), measured))
    wafer, up = trace.of("emulated")
    place = {"mode": "train", "step": 3, "round": 0, "layer": "fc1", "phase": "backward"}
    assert wafer[:5] == ("emulated", "CS wafer", "fc1 backward", 0, 2000)
    exact = {"activity": "compute", "attribution": "compute", "ps": 2 * US_PS + 1}
    assert wafer.args == {**place, **exact}
    assert (up.track, up.name, up.args["bytes"]) == ("SwarmX up", "fc1 reduce", 1000)
    (added,) = trace.of("measured", "csx-0")
    assert (added.name, added.start_ns, added.end_ns) == ("fc1 sum", 0, 2000)
    expected = {"activity": "sum", "attribution": "reduce", "bytes": 12, "detail": "bucket 4"}
    assert added.args == {**place, **expected}


def test_a_compressed_trace_is_the_same(tmp_path: Path) -> None:
    activities = Activities(record_of_a_segment())
    plain, packed = (written(tmp_path / name, activities) for name in ("t.json", "t.json.gz"))
    assert packed == plain


def test_counters_show_links_and_sram(tmp_path: Path) -> None:
    """A link has a rate while it is used; SRAM holds what the plan says from a segment on."""
    trace = written(tmp_path / "trace.json", Activities(record_of_a_segment()))
    seen = [(event["name"], event["ts"], event["args"]) for event in trace.counters]
    assert seen == [
        ("SwarmX up", 2.0, {"bytes/s": GB}),
        ("SwarmX up", 3.0, {"bytes/s": 0}),
        ("CS SRAM", 0.0, {"activation bytes": 70, "buffer bytes": 8}),
    ]


def test_activities_side_by_side_get_tracks_of_their_own(tmp_path: Path) -> None:
    """Slices of one track never overlap, and no more tracks are used than needed."""
    lanes = [(0, 10), (5, 12), (10, 20), (12, 15)]
    intervals = [Interval("compute", start, end) for start, end in lanes]
    trace = written(tmp_path / "trace.json", Activities(measured={"csx-0": intervals}))
    assert trace.tracks("measured") == {"csx-0", "csx-0 (2)"}


def test_a_clock_that_nothing_ran_by_has_no_process(tmp_path: Path) -> None:
    """A simulation measures nothing; a reader looks for no rows that are not there."""
    trace = written(tmp_path / "trace.json", Activities(record_of_a_segment(), {"crd-0": []}))
    assert trace.of("measured") == []


def test_a_trace_tells_what_the_limit_has_cut(tmp_path: Path) -> None:
    """In the file's description, and on the time line, where a viewer shows it."""
    record = Record(limit=1)
    for step in (1, 2):
        record.enter_round("train", step)
        record.add("steps", "train", step, step + 1)
    trace = written(tmp_path / "trace.json", Activities(record, num_lost=7))
    assert len(trace.slices) == 1
    assert len(trace.about["missing"]) == len(trace.instants) == 2
    assert "train step 2" in trace.about["missing"][0]


def test_a_trace_without_activities_is_still_a_trace(tmp_path: Path) -> None:
    """A viewer opens it and shows nothing."""
    path = tmp_path / "trace.json"
    write_trace(path, Activities())
    assert json.loads(path.read_text())["traceEvents"] == []


@pytest.mark.parametrize("name", ["trace.json", "trace.json.gz"])
def test_full_disk_names_the_trace(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    with full_disk(0), pytest.raises(OSError, match=name) as caught:
        write_trace(path, Activities(record_of_a_segment()))
    assert caught.value.filename == str(path)


def test_long_trace_has_an_event_in_a_line_whatever_layers_are_called(tmp_path: Path) -> None:
    layer = ',{"ph":'
    place = Place("train", 3, 0, layer, "backward")
    intervals = [Interval("sum", start, start + 1, place) for start in range(3_000)]
    path = tmp_path / "trace.json"
    trace = written(path, Activities(measured={"csx-0": intervals}))
    assert [event.name for event in trace.of("measured", "csx-0")] == [f"{layer} sum"] * 3_000
    lines = path.read_text().splitlines()[1:-1]
    assert all(line.startswith('{"ph":') for line in lines)
