"""Traces for Perfetto and chrome://tracing: emulated and measured time in one file.

The file has one process per clock with activities ("emulated", "measured") and one thread per
timeline or role. The format is the Trace Event Format (Google, "Trace Event Format", section
"Complete Events"): times in microseconds, fractions allowed. Both clocks start at 0 with their
first activity.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from timing.timeline import Occupancy
from wsc.core.role import Interval
from wsc.core.units import PS_PER_NS, PS_PER_US

Event = dict[str, Any]


class _Bar(NamedTuple):
    start_ps: int
    end_ps: int
    activity: str
    details: Mapping[str, Any]


def write_trace(
    path: Path, emulated: Sequence[Occupancy], measured: Mapping[str, Sequence[Interval]]
) -> None:
    """Write the activities of emulated timelines and of real roles, by name, to one JSON file."""
    emulated_rows: dict[str, list[_Bar]] = {}
    for work in emulated:
        bar = _Bar(work.start_ps, work.end_ps, work.activity, {})
        emulated_rows.setdefault(work.timeline, []).append(bar)
    measured_rows = {role: [_bar(work) for work in works] for role, works in measured.items()}
    events = [*_process(1, "emulated", emulated_rows), *_process(2, "measured", measured_rows)]
    path.write_text(json.dumps({"traceEvents": events}), encoding="utf-8")


def _bar(work: Interval) -> _Bar:
    details = {"step": work.step, "detail": work.detail}
    return _Bar(work.start_ns * PS_PER_NS, work.end_ns * PS_PER_NS, work.activity, details)


def _process(pid: int, name: str, rows: Mapping[str, list[_Bar]]) -> Iterator[Event]:
    if not any(rows.values()):
        return
    yield {"ph": "M", "pid": pid, "name": "process_name", "args": {"name": name}}
    origin_ps = min(bar.start_ps for bars in rows.values() for bar in bars)
    tracks = [(row, track) for row, bars in rows.items() for track in _tracks(bars)]
    for tid, (row, bars) in enumerate(tracks, start=1):
        yield {"ph": "M", "pid": pid, "tid": tid, "name": "thread_name", "args": {"name": row}}
        for bar in bars:
            yield {
                "ph": "X",
                "pid": pid,
                "tid": tid,
                "name": bar.activity,
                "ts": (bar.start_ps - origin_ps) / PS_PER_US,
                "dur": (bar.end_ps - bar.start_ps) / PS_PER_US,
                "args": dict(bar.details),
            }


def _tracks(bars: Iterable[_Bar]) -> list[list[_Bar]]:
    """Distribute bars over as few threads as possible without overlap in a thread.

    Lanes of one role work side by side; viewers draw overlapping bars on top of each other.
    """
    tracks: list[list[_Bar]] = []
    for bar in sorted(bars, key=lambda bar: bar.start_ps):
        for track in tracks:
            if track[-1].end_ps <= bar.start_ps:
                track.append(bar)
                break
        else:
            tracks.append([bar])
    return tracks
