"""Measure how much processor time a step takes on each arm, by process.

    python -m benchmarks.streaming.processor_time --precision bf16 --json FILE

Each arm is alone on the host. Processor time depends less on other work than elapsed time does.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.processes import busy_below
from benchmarks.streaming.arm import UNCOUNTED_STEPS, Arm
from benchmarks.streaming.arms import openers
from benchmarks.streaming.workload import Layout, workload_flags, workload_of
from waferstream.host.files import write_json
from waferstream.reports.benchmark import new_file, new_result, positive

_ROLES = {"ray::csx": "systems", "ray::wgt": "weight servers", "ray::br": "switches"}
_OTHERS = "others"  # the loop in memory; or the program, the coordinator, input workers and Ray


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print and write JSON; return the exit status."""
    options = _parser().parse_args(arguments)
    workload = workload_of(options, options.batch_size)
    layout = Layout(options.best_micro_batch, workload.cores)
    result = new_result("processor time of a step by process, each arm alone")
    result |= {"workload": asdict(workload), "best": str(layout), "arms": {}}
    for name in options.arms:
        with TemporaryDirectory(prefix="benchmark-") as folder:
            plan = openers(name, workload, Path(folder), layout)
            with closing(Arm(name, plan, options.warm_up_steps)) as arm:
                busy_s = busy_per_step(arm, options.steps)
        print(f"{name}: " + ", ".join(f"{who} {s:.2f} s" for who, s in busy_s.items()), flush=True)
        result["arms"][name] = busy_s
        write_json(options.json, result)
    return 0


def busy_per_step(arm: Arm, steps: int) -> dict[str, float]:
    """Train; return the seconds of processor time per step, by kind of process, and their sum."""
    before = _busy_by_kind(arm)
    arm.run(steps)
    counted = steps + UNCOUNTED_STEPS
    per_step = {kind: (s - before[kind]) / counted for kind, s in _busy_by_kind(arm).items()}
    return {**per_step, "sum": sum(per_step.values())}


def _busy_by_kind(arm: Arm) -> dict[str, float]:
    """Return the seconds that the processes of an arm have computed so far."""
    busy: dict[str, float] = defaultdict(float)
    for root in arm.pids:
        for process in busy_below(root):
            busy[_ROLES.get(process.name.partition("-")[0], _OTHERS)] += process.busy_s
    return busy


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        parents=[workload_flags()],
        prog="python -m benchmarks.streaming.processor_time",
        description=(__doc__ or "").partition("\n")[0],
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    measurement = parser.add_argument_group("measurement")
    measurement.add_argument("--json", type=new_file, required=True, help="where results go")
    arms = ["best", "csx1", "csx2", "csx4", "csx8"]
    measurement.add_argument("--arms", nargs="+", default=arms, help="as of benchmarks.streaming")
    measurement.add_argument("--batch_size", type=positive, default=8)
    measurement.add_argument(
        "--best_micro_batch",
        type=positive,
        default=2,
        help="samples of a micro-batch of the arm best, one for each core side by side",
    )
    measurement.add_argument("--steps", type=positive, default=2, help="steps behind a first one")
    measurement.add_argument("--warm_up_steps", type=positive, default=1)
    return parser


if __name__ == "__main__":
    sys.exit(main())
