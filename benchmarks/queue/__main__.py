"""Compare jobs that breathe with EASY back-fill on a trace.

    python -m benchmarks.queue --trace nasa.swf.zip --groups 16 \\
        --json benchmarks/results/queue_nasa.json

EASY knows true run times and gives each job the systems that it asks for. Jobs that breathe get as
many or fewer, by the rules of ``waferstream.management.schedule``, and every resize or pause costs
350 s without progress. Arms: ``breathing``; ``off``, with predictions off by a random factor up to
3; ``fixed``, with the sizes of the trace and neither resizes nor pauses. Arrivals are compressed to
a load of 0.95, of systems or of MemoryX groups, whichever is higher. The speed-up by systems is
near linear (exponent 0.95). Times of decisions are processor times. With ``--slurm`` the first 200
jobs also run on a real Slurm of 16 nodes, a thousand times as fast (``on_slurm``).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from math import inf
from pathlib import Path
from time import process_time
from typing import Any

from benchmarks.queue.decisions import measure_decisions
from benchmarks.queue.easy import easy_starts_s
from benchmarks.queue.figures import Figures, breathing, decision_times, expected_starts, figures
from benchmarks.queue.on_slurm import fitted, measure_slurm
from waferstream.core.errors import WaferStreamError
from waferstream.host.files import write_json
from waferstream.management.schedule.actions import Action
from waferstream.management.schedule.decide import decide
from waferstream.management.schedule.simulate import simulate
from waferstream.management.schedule.trace import MOST_JOBS, TraceJob, read_trace
from waferstream.management.schedule.workload import Workload, at_load, uniform, workload
from waferstream.reports.benchmark import new_file, new_result, positive

ARMS: dict[str, Callable[[Sequence[TraceJob]], Workload]] = {
    "breathing": workload,
    "off": partial(workload, off_by=3.0),
    "fixed": partial(workload, resize_s=inf),
}


def measure_easy(trace: Sequence[TraceJob], systems: int, groups: int) -> Figures:
    """Return the figures of EASY back-fill."""
    starts_s = easy_starts_s(trace, systems, groups)
    ends_s = [start_s + job.run_s for job, start_s in zip(trace, starts_s, strict=True)]
    waits_s = [start_s - job.submitted_s for job, start_s in zip(trace, starts_s, strict=True)]
    return figures(trace, starts_s, ends_s, waits_s, systems)


def measure_arm(
    arm: str, trace: Sequence[TraceJob], systems: int, groups: int, easy: Figures
) -> dict[str, Any]:
    """Run an arm; return its figures, beside EASY's, and how long decisions took."""
    decisions_s: list[float] = []

    def timed(*arguments: Any) -> list[Action]:
        start_s = process_time()
        actions = decide(*arguments)
        decisions_s.append(process_time() - start_s)
        return actions

    work = ARMS[arm](trace)
    start_s = process_time()
    runs = simulate(uniform(systems, groups), work.jobs, slower=work.slower, decide=timed)
    processor_s = process_time() - start_s
    result = breathing(trace, runs, systems)
    return {
        **asdict(result),
        "beside_easy": result.beside(easy),
        "resizes": sum(run.resizes for run in runs),
        "pauses": sum(run.pauses for run in runs),
        "expected_starts": expected_starts(runs),
        "decisions": decision_times(decisions_s),
        "processor_s": processor_s,
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, write JSON; return the exit status."""
    options = _parser().parse_args(arguments)
    result = new_result("turnaround and waits of jobs that breathe, beside EASY back-fill")
    try:
        trace = read_trace(options.trace, options.jobs)
    except WaferStreamError as error:
        print(f"Error: {error}", file=sys.stderr)
        return 1
    if options.slurm:
        trace = fitted(trace)
    systems = options.systems or max(job.systems for job in trace)
    trace = at_load(trace, systems, options.groups, options.load)
    easy = measure_easy(trace, systems, options.groups)
    print(f"{options.trace.name}: {len(trace):,} jobs, {systems} systems, {options.groups} groups")
    print(f"EASY: turnaround {easy.mean_turnaround_s:,.0f} s, wait {easy.mean_wait_s:,.0f} s")
    on_slurm = {}
    if options.slurm:
        on_slurm = measure_slurm(trace, easy)
        print(f"Slurm: {on_slurm['beside_easy']}", flush=True)
    arms = {}
    for arm in options.arms:
        arms[arm] = measure_arm(arm, trace, systems, options.groups, easy)
        print(f"{arm}: {_described(arms[arm])}", flush=True)
    result |= {
        "trace": options.trace.name,
        "jobs": len(trace),
        "systems": systems,
        "groups": options.groups,
        "load": options.load,
        "easy": asdict(easy),
        "slurm": on_slurm,
        "arms": arms,
        "queue_of_1000_on_192_systems": measure_decisions(),
    }
    if options.json is not None:
        write_json(options.json, result)
    return 0


def _described(arm: dict[str, Any]) -> str:
    beside = arm["beside_easy"]
    return (
        f"turnaround {beside['mean_turnaround_s']:.3f} of EASY's, wait {beside['mean_wait_s']:.3f},"
        f" with pauses {beside['mean_without_systems_s']:.3f}, longest wait"
        f" {arm['longest_wait_s'] / 3600:.1f} h, utilisation {beside['utilisation']:+.3f}, worst"
        f" user's slowdown {beside['worst_slowdown']:.3f}, {arm['resizes']} resizes,"
        f" {arm['pauses']} pauses, {arm['expected_starts']['inside']:.1%} start when expected,"
        f" {arm['processor_s']:.0f} s"
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0], allow_abbrev=False)
    parser.add_argument("--trace", type=Path, required=True, help="SWF or CSV, also compressed")
    parser.add_argument("--groups", type=positive, default=16, help="MemoryX groups")
    parser.add_argument("--systems", type=positive, help="without: those of the largest job")
    parser.add_argument("--load", type=float, default=0.95, help="to which arrivals are compressed")
    parser.add_argument("--jobs", type=positive, default=MOST_JOBS, help="the first jobs alone")
    parser.add_argument("--slurm", action="store_true", help="200 jobs on a real Slurm, too")
    parser.add_argument("--arms", nargs="+", choices=list(ARMS), default=list(ARMS))
    parser.add_argument("--json", type=new_file, help="file for the result")
    return parser


if __name__ == "__main__":
    sys.exit(main())
