"""Traces for Perfetto and chrome://tracing: emulated and measured time in one file.

The format is the Trace Event Format (Google, "Trace Event Format", sections "Complete Events",
"Counter Events", "Instant Events" and "Metadata Events"). The file has one process per clock and
one thread per timeline or role. Times are microseconds with three decimals, since viewers count in
nanoseconds; the argument ``ps`` of an emulated slice is exact. Both clocks start at 0 with their
first activity.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from waferstream.core.roles.activities import RECOVER, Interval, Place
from waferstream.core.units import PS_PER_NS, PS_PER_S
from waferstream.host.files import naming
from waferstream.machine.record import Occupancy, Record

Event = dict[str, Any]

_AT_ONCE = 1000
"""Events that become text together, which takes a third of the time."""
_BEGINNING = ',{"ph":'
"""Of an event behind another one; within a text its quotes would be escaped."""

EMULATED, MEASURED = 1, 2
"""Numbers of the processes in a file, one for each clock."""

ATTRIBUTION_OF: Mapping[str, str] = {
    "cast": "weights", "read": "weights", "broadcast": "weights",
    "load": "input",
    "add": "reduce", "sum": "reduce", "norm": "reduce", "update": "reduce",
    "wait for weights": "weights", "wait for activations": "activations",
    "wait for input": "input", "wait for reduce": "reduce",
}  # fmt: skip
"""The cause to which a wait for an activity is charged, where it has another name."""

_CAUSES = frozenset(
    (
        "compute",
        "overhead",
        "straggler",
        "weights",
        "activations",
        "input",
        "reduce",
        "idle",
        "link",
    )
)
_LINKS = (
    "CS inputs in", "CS weights in", "CS gradients out",
    "SwarmX down", "SwarmX up", "MemoryX out", "MemoryX in",
)  # fmt: skip
"""Timelines that are links; each has a counter of its rate."""
_ORDER = ("steps", "CS wafer", "CS attribution", "CS spare systems", "CS input workers", *_LINKS)
"""Timelines from top to bottom; those of single servers follow."""


@dataclass(frozen=True)
class Activities:
    """What a cluster has done: emulated, if it was recorded, and measured, by role.

    ``num_lost`` counts the measured activities that did not fit.
    """

    emulated: Record | None = None
    measured: Mapping[str, Sequence[Interval]] = field(default_factory=dict)
    num_lost: int = 0

    def missing(self) -> list[str]:
        """Return sentences about the parts that the limit and lost attempts have cut."""
        found = []
        if self.emulated is not None and (first := self.emulated.first_missing) is not None:
            found.append(
                f"emulated time is whole before {first.mode} step {first.step}; the limit is "
                f"{self.emulated.limit:,} activities (--trace_limit)"
            )
        if self.num_lost:
            found.append(f"at least {self.num_lost:,} measured activities did not fit")
        works = (work for of in self.measured.values() for work in of)
        if count := sum(work.activity == RECOVER for work in works):
            found.append(f"what roles had done before {count:,} recoveries is not in measured time")
        return found


class _Bar(NamedTuple):
    """A slice of the file, in nanoseconds of its clock."""

    start_ns: int
    end_ns: int
    name: str
    details: Mapping[str, Any]


def write_trace(path: Path, activities: Activities, notes: Sequence[str] = ()) -> None:
    """Write activities to one JSON file, with ``notes`` about what is not in it.

    A file whose name ends with ``.gz`` is compressed, which viewers read as well. An OSError names
    the file, also that of a full disk.
    """
    missing = [*notes, *activities.missing()]
    opened = gzip.open if path.suffix == ".gz" else open
    with naming(path), opened(path, "wt", encoding="utf-8") as file:
        about = {"missing": missing}
        file.write(f'{{"displayTimeUnit": "ns", "otherData": {json.dumps(about)}, ')
        file.write('"traceEvents": [')
        separator, events = "\n", _events(activities, missing)
        while some := list(islice(events, _AT_ONCE)):
            lines = json.dumps(some, separators=(",", ":"))[1:-1]
            file.write(separator + lines.replace(_BEGINNING, f",\n{_BEGINNING[1:]}"))
            separator = ",\n"
        file.write("\n]}\n")


def _events(activities: Activities, missing: Sequence[str]) -> Iterator[Event]:
    """Yield all events: emulated slices and counters, measured slices, and what is missing."""
    record = activities.emulated
    rows: dict[str, list[_Bar]] = {timeline: [] for timeline in _ORDER}
    for work in () if record is None else record.occupancies:
        rows.setdefault(work.timeline, []).append(_emulated_bar(work))
    origin_ns = _origin_ns(rows)
    yield from _process(EMULATED, "emulated", rows, origin_ns)
    if record is not None:
        yield from _counters(record, origin_ns)
    measured = {role: [*map(_measured_bar, of)] for role, of in activities.measured.items()}
    yield from _process(MEASURED, "measured", measured, _origin_ns(measured))
    for sentence in missing:
        name = f"not in this trace: {sentence}"
        yield {"ph": "i", "s": "g", "pid": EMULATED, "tid": 0, "ts": 0, "name": name}


def _emulated_bar(work: Occupancy) -> _Bar:
    details = _details(work.activity, work.place, work.num_bytes)
    details["ps"] = work.end_ps - work.start_ps
    name = _name(work.activity, work.place)
    return _Bar(work.start_ps // PS_PER_NS, work.end_ps // PS_PER_NS, name, details)


def _measured_bar(work: Interval) -> _Bar:
    details = _details(work.activity, work.place, work.num_bytes)
    if work.detail:
        details["detail"] = work.detail
    return _Bar(work.start_ns, work.end_ns, _name(work.activity, work.place), details)


def _name(activity: str, place: Place) -> str:
    """Return the name of a slice: the layer and what is done with it, such as ``fc1 backward``."""
    done = place.phase if activity == "compute" and place.phase else activity
    return f"{place.layer} {done}" if place.layer else done


def _details(activity: str, place: Place, num_bytes: int) -> dict[str, Any]:
    """Return the arguments of a slice, without those that are empty."""
    details: dict[str, Any] = {"activity": activity}
    if (cause := ATTRIBUTION_OF.get(activity, activity)) in _CAUSES:
        details["attribution"] = cause
    for key, value in place._asdict().items():
        if value not in ("", -1, 0) or (key == "round" and value == 0):
            details[key] = value
    if num_bytes:
        details["bytes"] = num_bytes
    return details


def _origin_ns(rows: Mapping[str, Sequence[_Bar]]) -> int:
    """Return the start of the first slice of a clock."""
    return min((bar.start_ns for bars in rows.values() for bar in bars), default=0)


def _process(
    pid: int, name: str, rows: Mapping[str, list[_Bar]], origin_ns: int
) -> Iterator[Event]:
    """Yield the names of a clock and of its tracks, and all slices; nothing without a slice."""
    if not any(rows.values()):
        return
    yield {"ph": "M", "pid": pid, "name": "process_name", "args": {"name": name}}
    yield {"ph": "M", "pid": pid, "name": "process_sort_index", "args": {"sort_index": pid}}
    tracks = [
        (f"{row} ({number})" if number > 1 else row, track)
        for row, bars in rows.items()
        for number, track in enumerate(_tracks(bars), start=1)
    ]
    for tid, (row, bars) in enumerate(tracks, start=1):
        yield {"ph": "M", "pid": pid, "tid": tid, "name": "thread_name", "args": {"name": row}}
        order = {"sort_index": tid}
        yield {"ph": "M", "pid": pid, "tid": tid, "name": "thread_sort_index", "args": order}
        for bar in bars:
            yield {
                "ph": "X",
                "pid": pid,
                "tid": tid,
                "name": bar.name,
                "ts": _us(bar.start_ns - origin_ns),
                "dur": _us(bar.end_ns - bar.start_ns),
                "args": bar.details,
            }


def _counters(record: Record, origin_ns: int) -> Iterator[Event]:
    """Yield the rate of each link, and what a system holds in SRAM, in emulated time."""
    for work in record.occupancies:
        if work.timeline in _LINKS and work.num_bytes:
            rate = work.num_bytes * PS_PER_S // (work.end_ps - work.start_ps)
            for at_ps, value in ((work.start_ps, rate), (work.end_ps, 0)):
                yield _sample(at_ps, origin_ns, work.timeline, {"bytes/s": value})
    for use in record.sram:
        held = {"activation bytes": use.activation_bytes, "buffer bytes": use.buffer_bytes}
        yield _sample(use.at_ps, origin_ns, "CS SRAM", held)


def _sample(at_ps: int, origin_ns: int, name: str, values: Mapping[str, int]) -> Event:
    """Return the values of a counter from a moment on."""
    ts = _us(at_ps // PS_PER_NS - origin_ns)
    return {"ph": "C", "pid": EMULATED, "name": name, "ts": ts, "args": dict(values)}


def _us(time_ns: int) -> float:
    """Return microseconds, the unit of the format."""
    return time_ns / 1000


def _tracks(bars: Iterable[_Bar]) -> list[list[_Bar]]:
    """Distribute bars over as few threads as possible without overlap in a thread.

    Lanes of one role work side by side; viewers draw overlapping bars on top of each other.
    """
    tracks: list[list[_Bar]] = []
    for bar in sorted(bars, key=lambda bar: bar.start_ns):
        for track in tracks:
            if track[-1].end_ns <= bar.start_ns:
                track.append(bar)
                break
        else:
            tracks.append([bar])
    return tracks
