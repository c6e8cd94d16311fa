"""Reads the traces of a run, and checks them against the rules of their format."""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from waferstream.machine.attribution import Attribution
from waferstream.machine.trace import EMULATED

Event = dict[str, Any]


class Slice(NamedTuple):
    """One slice of a trace; times in whole nanoseconds."""

    process: str
    track: str
    name: str
    start_ns: int
    end_ns: int
    args: dict[str, Any]


class Trace(NamedTuple):
    """A trace as a viewer sees it."""

    slices: list[Slice]
    counters: list[Event]
    instants: list[Event]
    about: dict[str, Any]

    def of(self, process: str, track: str = "") -> list[Slice]:
        """Return the slices of a process, or of one of its tracks."""
        return [s for s in self.slices if s.process == process and track in ("", s.track)]

    def tracks(self, process: str) -> set[str]:
        """Return the names of the tracks of a process."""
        return {s.track for s in self.of(process)}

    def attributions(self) -> dict[tuple[str, int], Attribution]:
        """Return the emulated time by cause of each step."""
        sums: dict[tuple[str, int], dict[str, int]] = defaultdict(lambda: defaultdict(int))
        for each in self.of("emulated", "CS attribution"):
            args = each.args
            sums[args["mode"], args["step"]][args["attribution"]] += args["ps"]
        return {step: Attribution(**causes) for step, causes in sums.items()}


def read_trace(path: Path) -> Trace:
    """Read a trace and check it: metadata first, times that are numbers, no overlap in a track.

    The rules are those of the Trace Event Format, and Perfetto's that slices of one thread nest.
    """
    content = path.read_bytes()
    document = json.loads(gzip.decompress(content) if path.suffix == ".gz" else content)
    events: list[Event] = document["traceEvents"]
    names: dict[tuple[int, int], str] = {}
    processes: dict[int, str] = {}
    for event in events:
        if event["ph"] == "M" and event["name"] == "process_name":
            processes[event["pid"]] = event["args"]["name"]
        elif event["ph"] == "M" and event["name"] == "thread_name":
            names[event["pid"], event["tid"]] = event["args"]["name"]
    slices = [
        Slice(
            processes[event["pid"]],
            names[event["pid"], event["tid"]],
            event["name"],
            round(event["ts"] * 1000),
            round((event["ts"] + event["dur"]) * 1000),
            event["args"],
        )
        for event in events
        if event["ph"] == "X"
    ]
    assert {event["ph"] for event in events} <= {"M", "X", "C", "i"}
    by_track: dict[tuple[str, str], list[Slice]] = defaultdict(list)
    for each in slices:
        assert 0 <= each.start_ns <= each.end_ns
        by_track[each.process, each.track].append(each)
    for of_track in by_track.values():
        in_order = sorted(of_track, key=lambda each: (each.start_ns, each.end_ns))
        assert all(a.end_ns <= b.start_ns for a, b in pairwise(in_order))
    counters = [event for event in events if event["ph"] == "C"]
    assert all(event["pid"] == EMULATED and event["args"] for event in counters)
    instants = [event for event in events if event["ph"] == "i"]
    return Trace(slices, counters, instants, document["otherData"])
