"""A trace on a real Slurm of this host, a thousand times as fast: each job sleeps on its nodes.

Slurm knows time limits, in whole minutes, and no run times; its back-fill runs every second. Where
no slurmdbd keeps the use of each user, fair share is equal for all, and the order is that of age.
"""

from __future__ import annotations

import math
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from benchmarks.hosts.slurm import program, slurm
from benchmarks.queue.figures import Figures, figures
from waferstream.management.schedule.trace import TraceJob

NODES, JOBS, SPEED = 16, 200, 1000

_SETTINGS = """
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=1,bf_resolution=60,sched_min_interval=10000,bf_max_job_test=500
PriorityType=priority/multifactor
PriorityWeightAge=1000
PriorityMaxAge=1
"""
_LOOK_S, _LONGEST_S = 0.5, 3600.0


def fitted(trace: Sequence[TraceJob]) -> list[TraceJob]:
    """Return the first jobs of a trace, whose largest takes all nodes."""
    first = trace[:JOBS]
    largest = max(job.systems for job in first)
    return [replace(job, systems=max(1, math.ceil(job.systems * NODES / largest))) for job in first]


def measure_slurm(trace: Sequence[TraceJob], easy: Figures) -> dict[str, Any]:
    """Run a trace; return the figures of Slurm, in seconds of the trace, and beside EASY's.

    The least wait is what Slurm and this host take to start a job that nothing stands in the way
    of; it counts a thousandfold.
    """
    with tempfile.TemporaryDirectory(prefix="slurm-") as name:
        folder = Path(name)
        with slurm(folder, NODES, cpus=1, more=_SETTINGS) as variables:
            begin_s = time.time()
            for number, job in enumerate(trace):
                time.sleep(max(0.0, begin_s + job.submitted_s / SPEED - time.time()))
                _submit(number, job, folder, variables)
            _wait_for_all(folder, len(trace))
        spans_s = [_span_s(folder / f"{number}", begin_s) for number in range(len(trace))]
    starts_s = [start_s for start_s, _ in spans_s]
    ends_s = [end_s for _, end_s in spans_s]
    waits_s = [start_s - job.submitted_s for job, start_s in zip(trace, starts_s, strict=True)]
    result = figures(trace, starts_s, ends_s, waits_s, NODES)
    beside = result.beside(easy)
    return {**asdict(result), "least_wait_s": min(waits_s), "beside_easy": beside}


def _submit(number: int, job: TraceJob, folder: Path, variables: Mapping[str, str]) -> None:
    """Submit a job that notes when it starts and ends."""
    note = f"date +%s.%N >> {folder / str(number)}"
    run_s = job.run_s / SPEED
    options = [f"--nodes={job.systems}", "--exclusive", f"--time={math.ceil(run_s / 60)}"]
    command = f"--wrap={note}; sleep {run_s:.3f}; {note}"
    words = [program("sbatch"), "--output=/dev/null", *options, command]
    subprocess.run(words, env=variables, check=True, capture_output=True)


def _wait_for_all(folder: Path, count: int) -> None:
    """Wait until all jobs have noted their end."""
    deadline_s = time.monotonic() + _LONGEST_S
    notes = [folder / f"{number}" for number in range(count)]
    while not all(note.exists() and len(note.read_text().split()) == 2 for note in notes):
        if time.monotonic() > deadline_s:
            raise TimeoutError(f"Slurm has not ended all jobs after {_LONGEST_S:g} s")
        time.sleep(_LOOK_S)


def _span_s(note: Path, begin_s: float) -> tuple[float, float]:
    """Return when a job has started and ended, in seconds of the trace."""
    start_s, end_s = (SPEED * (float(text) - begin_s) for text in note.read_text().split())
    return start_s, end_s
