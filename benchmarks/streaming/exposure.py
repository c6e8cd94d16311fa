"""What a streamed step spends its time on, from the measured activities of the roles.

    python -m benchmarks.streaming.exposure --json exposure.json --trace exposure.trace.json

At every moment the most useful activity of any role counts:

    compute     a system runs a kernel, or adds gradients that it has just computed
    optimizer   no system computes; a weight server updates, or agrees on a norm
    sums        only sums of gradients are formed
    casts       only weights are cast for the stream
    nothing     no role states an activity: messages, waiting, Python

So the shares are what is *exposed* of each activity. ``busy_lanes`` is the time of all kernels over
that of all cores. The first step of a run, which fills the pipeline, is left out.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from benchmarks.streaming.arms import open_cluster
from benchmarks.streaming.workload import Workload, workload_flags, workload_of
from waferstream.host.files import write_json
from waferstream.machine.trace import MEASURED
from waferstream.reports.benchmark import new_file, new_result, positive

_KINDS = {
    "compute": "compute",
    "update": "optimizer",
    "norm": "optimizer",
    "sum": "sums",
    "cast": "casts",
}
_WARM_UP = 1  # steps
RANKS = ("compute", "optimizer", "sums", "casts")
"""The kinds of activities, the most useful first."""


class Bar(NamedTuple):
    """One activity of a role: its kind and step, from ``start`` to ``end`` in microseconds."""

    kind: str
    step: int
    start: float
    end: float


@dataclass(frozen=True)
class Exposure:
    """Shares of the time of some steps, by the most useful activity at each moment."""

    compute: float
    optimizer: float
    sums: float
    casts: float
    nothing: float
    busy_lanes: float
    step_s: float

    def line(self) -> str:
        """Return one line for people."""
        shares = "  ".join(f"{kind} {getattr(self, kind):.1%}" for kind in (*RANKS, "nothing"))
        return f"{self.step_s:.3f} s/step  {shares}  lanes busy {self.busy_lanes:.1%}"


def bars_of(trace: Path) -> list[Bar]:
    """Return the measured activities in a trace that a backend has written."""
    events = json.loads(trace.read_text(encoding="utf-8"))["traceEvents"]
    return [
        Bar(_KINDS[e["args"]["activity"]], e["args"]["step"], e["ts"], e["ts"] + e["dur"])
        for e in events
        if e["ph"] == "X" and e["pid"] == MEASURED and e["args"]["activity"] in _KINDS
    ]


def exposure_of(bars: Iterable[Bar], cores: int) -> Exposure:
    """Attribute every moment between the first kernel of the second step and the last update."""
    everything = sorted(bars, key=lambda bar: bar.start)
    second = sorted({bar.step for bar in everything})[1]
    begin = min(bar.start for bar in everything if bar.step == second and bar.kind == "compute")
    end = max(bar.end for bar in everything)
    inside = [bar._replace(start=max(bar.start, begin)) for bar in everything if bar.end > begin]
    num_steps = len({bar.step for bar in everything}) - 1
    exposed = dict.fromkeys((*RANKS, "nothing"), 0.0)
    running = dict.fromkeys(RANKS, 0)
    changes = [(bar.start, 1, bar.kind) for bar in inside]
    changes += [(bar.end, -1, bar.kind) for bar in inside]
    now = begin
    for time, change, kind in sorted(changes):
        best = next((rank for rank in RANKS if running[rank]), "nothing")
        exposed[best] += time - now
        running[kind] += change
        now = time
    total = end - begin
    busy = sum(bar.end - bar.start for bar in inside if bar.kind == "compute")
    shares = {kind: part / total for kind, part in exposed.items()}
    return Exposure(**shares, busy_lanes=busy / total / cores, step_s=total / num_steps / 1e6)


def measure(workload: Workload, num_csx: int, steps: int, trace: Path) -> Exposure:
    """Train some steps on a cluster after a warm-up; write the trace of their activities."""
    with open_cluster(workload, num_csx, trace) as run:
        run(_WARM_UP)
        run(steps)
    timed = [bar for bar in bars_of(trace) if bar.step > _WARM_UP]
    return exposure_of(timed, workload.cores)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print one line for each number of systems, write JSON."""
    options = _parser().parse_args(arguments)
    found: dict[str, dict[str, Any]] = {}
    workload = workload_of(options, options.batch_size)
    for num_csx in options.num_csx:
        with TemporaryDirectory(prefix="exposure-") as folder:
            trace = options.trace or Path(folder) / "trace.json"
            exposure = measure(workload, num_csx, options.steps, trace)
        print(f"csx{num_csx:<3} {exposure.line()}", flush=True)
        found[f"csx{num_csx}"] = asdict(exposure)
        question = "what a streamed step spends its time on"
        result = {**new_result(question), "workload": asdict(workload), "arms": found}
        write_json(options.json, result)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        parents=[workload_flags()],
        prog="python -m benchmarks.streaming.exposure",
        description=(__doc__ or "").partition("\n")[0],
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("--json", type=new_file, required=True, help="where results go")
    parser.add_argument("--trace", type=Path, help="Perfetto trace of the last measurement")
    parser.add_argument("--num_csx", nargs="+", type=positive, default=[1, 2, 4])
    parser.add_argument("--steps", type=positive, default=4, help="training steps; at least 2")
    parser.add_argument("--batch_size", type=positive, default=8)
    return parser


if __name__ == "__main__":
    sys.exit(main())
