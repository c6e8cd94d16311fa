"""Measure how much processor time a step takes on each arm, by process.

    python -m benchmarks.streaming.processor_time --precision bf16 --json FILE

Arms are set up one after the other, then train in turn while the others are stopped. Processor time
depends less on other work than elapsed time does, and the ratio to the first arm of the same turn
less still.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import asdict
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.processes import busy_below
from benchmarks.streaming.arm import UNCOUNTED_STEPS, Arm
from benchmarks.streaming.arms import openers
from benchmarks.streaming.comparison import Spread
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
    result = new_result("processor time of a step by process, arms in turn")
    result |= {"workload": asdict(workload), "best": str(layout)}
    found: dict[str, list[dict[str, float]]] = {name: [] for name in options.arms}
    with ExitStack() as alive:
        arms: list[Arm] = []
        for name in found:
            folder = alive.enter_context(TemporaryDirectory(prefix="benchmark-"))
            plan = openers(name, workload, Path(folder), layout)
            arms.append(alive.enter_context(closing(Arm(name, plan, options.warm_up_steps))))
        for _ in range(options.repeats):
            for arm in arms:
                found[arm.name].append(busy_per_step(arm, options.steps))
                print(_line(arm.name, found[arm.name][-1]), flush=True)
            result["arms"] = {
                name: summary(turns, found[arms[0].name]) for name, turns in found.items()
            }
            write_json(options.json, result)
    for name, each in result["arms"].items():
        of_first = each["of_first"]
        print(_line(name, each["seconds"]), f"{of_first['median']:.3f} of {arms[0].name}", end=" ")
        print(f"({of_first['min']:.3f} to {of_first['max']:.3f})")
    return 0


def summary(turns: list[dict[str, float]], first: list[dict[str, float]]) -> dict[str, Any]:
    """Return the median seconds of an arm, and its sum over that of the first arm in each turn."""
    return {
        "seconds": {kind: median(turn.get(kind, 0.0) for turn in turns) for kind in turns[-1]},
        "of_first": asdict(
            Spread.of([own["sum"] / base["sum"] for own, base in zip(turns, first, strict=True)])
        ),
    }


def _line(name: str, busy_s: Mapping[str, float]) -> str:
    return f"{name}: " + ", ".join(f"{who} {s:.2f} s" for who, s in busy_s.items())


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
    measurement.add_argument(
        "--arms",
        nargs="+",
        default=["best", "csx1", "csx2"],
        help="as of benchmarks.streaming, alive together; the first is what others are compared to",
    )
    measurement.add_argument("--repeats", type=positive, default=3, help="turns of all arms")
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
