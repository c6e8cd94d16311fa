"""What of a step is copies that no kernel hides, from a trace of torch's profiler."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal, NamedTuple

from torch.profiler import ProfilerActivity, profile

from benchmarks.gpu_session.loops import Run
from csnode.devices import DeviceName

Kind = Literal["kernel", "copy"]


class Span(NamedTuple):
    """What a device does from ``start`` to ``end``, in microseconds."""

    kind: Kind
    start: float
    end: float


@dataclass(frozen=True)
class Shares:
    """Shares of the time from the first span to the last.

    ``exposed`` copies run while no kernel does; ``hidden`` ones beside a kernel, in whose share
    ``kernels`` they are. ``idle`` is neither.
    """

    kernels: float
    exposed: float
    hidden: float
    idle: float
    seconds: float


def shares_of(spans: Iterable[Span]) -> Shares:
    """Attribute every moment; ValueError if there is no span."""
    every = list(spans)
    begin, end = min(span.start for span in every), max(span.end for span in every)
    changes = [(span.start, 1, span.kind) for span in every]
    changes += [(span.end, -1, span.kind) for span in every]
    running = {"kernel": 0, "copy": 0}
    taken = {(kernel, copy): 0.0 for kernel in (False, True) for copy in (False, True)}
    now = begin
    for moment, change, kind in sorted(changes):
        taken[running["kernel"] > 0, running["copy"] > 0] += moment - now
        running[kind] += change
        now = moment
    total = max(end - begin, 1e-9)
    return Shares(
        kernels=(taken[True, False] + taken[True, True]) / total,
        exposed=taken[False, True] / total,
        hidden=taken[True, True] / total,
        idle=taken[False, False] / total,
        seconds=total / 1e6,
    )


def spans_of(trace: Path, device: DeviceName) -> list[Span]:
    """Return kernels and copies of a trace; on the processor ops, which are done one by one."""
    events = json.loads(trace.read_text(encoding="utf-8"))["traceEvents"]
    found = []
    for event in events:
        kind = _kind(event.get("cat"), event.get("name", ""), device)
        if event.get("ph") == "X" and kind is not None:
            found.append(Span(kind, event["ts"], event["ts"] + event["dur"]))
    return found


def _kind(category: str | None, name: str, device: DeviceName) -> Kind | None:
    if device == "cuda":
        is_across = "HtoD" in name or "DtoH" in name
        if category == "gpu_memcpy" and is_across:
            return "copy"
        return "kernel" if category in ("kernel", "gpu_memcpy", "gpu_memset") else None
    if category != "cpu_op":
        return None
    return "copy" if name == "aten::copy_" else "kernel"


def traced(run: Run, steps: int, device: DeviceName) -> list[Span]:
    """Train some steps under the profiler; return what the device did."""
    activity = ProfilerActivity.CUDA if device == "cuda" else ProfilerActivity.CPU
    with TemporaryDirectory(prefix="trace-") as folder:
        trace = Path(folder) / "trace.json"
        with profile(activities=[activity]) as profiler:
            run(steps)
        profiler.export_chrome_trace(str(trace))
        return spans_of(trace, device)
