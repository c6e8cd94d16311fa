"""What a device can do at most, and what it does in a step: rates, and a trace of its copies."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Literal, NamedTuple

import torch
from torch.profiler import ProfilerActivity, profile

from benchmarks.gpu_session.loops import Run
from benchmarks.streaming.workload import Workload
from csnode.devices import DeviceName
from waferstream.baselines.gpu.chips import A100_80, B200, H100, H200
from waferstream.core.units import MIB

Kind = Literal["kernel", "copy"]
_TRIALS = 5


def seconds_of(act: Callable[[], object], device: DeviceName) -> float:
    """Return the median seconds of a few calls, after one that does not count."""
    taken = []
    for _ in range(_TRIALS + 1):
        start_s = time.perf_counter()
        act()
        if device == "cuda":
            torch.cuda.synchronize()
        taken.append(time.perf_counter() - start_s)
    return median(taken[1:])


def product_flops_per_s(device: DeviceName, size: int) -> float:
    """Return the rate of a bf16 product of square matrices of random numbers."""
    left, right = (torch.randn(size, size).to(device, torch.bfloat16) for _ in range(2))
    return 2 * size**3 / seconds_of(lambda: left @ right, device)


def copy_bytes_per_s(device: DeviceName, mib: int) -> dict[str, float]:
    """Return the rates of copies: from memory to memory of the host, to the device and back."""
    is_pinned = device == "cuda"
    num_bytes = mib * MIB
    pageable = torch.zeros(num_bytes, dtype=torch.uint8)
    host = torch.zeros(num_bytes, dtype=torch.uint8, pin_memory=is_pinned)
    there = torch.zeros(num_bytes, dtype=torch.uint8, device=device)
    copies = {
        "host": (host, pageable),
        "to_device": (there, host),
        "to_device_pageable": (there, pageable),
        "to_host": (host, there),
    }
    return {
        name: num_bytes / seconds_of(partial(to.copy_, of, non_blocking=True), device)
        for name, (to, of) in copies.items()
    }


def published_peak(name: str) -> float | None:
    """Return the 16-bit FLOPs per second of the data sheet of a GPU; None if it is not known."""
    known = {"A100": A100_80, "H100": H100, "H200": H200, "B200": B200}
    found = [spec for word, spec in known.items() if word in name]
    return found[0].flops_16bit_per_s if found else None


def model_flops(workload: Workload) -> float:
    """Return the model FLOPs of a step: products of weights, and attention to all tokens.

    Chowdhery et al. 2022 (arXiv:2204.02311), appendix B; nothing that is computed again counts.
    """
    attention = 12 * workload.layers * workload.hidden * workload.sequence_length
    return (6 * workload.num_parameters() + attention) * workload.tokens


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
