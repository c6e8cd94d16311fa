"""Compare training through the streamed cluster with training without it, on the same cores.

    python -m benchmarks.streaming --json benchmarks/results/streaming.json

The arms of a group are set up and warmed up one after the other, and then run trials alternately,
for each global batch size. benchmarks/README.md describes the arms and the tables. Arms that exceed
the memory together are set up for each of their trials (``--one_at_a_time``).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from statistics import mean
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import Any

from benchmarks.streaming.arm import Arm, Opener
from benchmarks.streaming.arms import openers
from benchmarks.streaming.comparison import Comparison, Runner, Trial, run_trials
from benchmarks.streaming.workload import (
    Layout,
    Workload,
    has_fast_bf16,
    workload_flags,
    workload_of,
)
from waferstream.core.errors import WaferStreamError
from waferstream.host.files import write_json
from waferstream.reports.benchmark import new_file, new_result, positive

GROUPS = (("best", "csx2", "ddp2"), ("best", "csx1", "fsdp2"), ("best", "csx4"), ("best", "csx8"))
"""Arms that are alive together; at 98M parameters four of them exceed 24 GB."""

_NEARLY = 1.12
"""Layouts within this factor of the fastest may be as fast: hosts drift by a tenth in minutes."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print tables, write JSON; return the exit status."""
    options = _parser().parse_args(arguments)
    try:
        _measure(options)
    except WaferStreamError as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    return 0


def compare(
    workload: Workload,
    arms: Sequence[str],
    repeats: int,
    steps: int,
    one_at_a_time: bool = False,
    warm_up_steps: int = 1,
    layouts: Mapping[Layout, float] = MappingProxyType({}),
) -> Comparison:
    """Run the trials of all arms, which stay alive between trials unless ``one_at_a_time``.

    An arm that is set up takes ``warm_up_steps`` first. ``layouts`` are the measured seconds of the
    loop in memory; ``best`` takes the fastest.

    Raises:
        ConfigError: An arm cannot train the workload; nothing was started.
        WaferStreamError: An arm failed.
    """
    best = min(layouts, key=lambda layout: layouts[layout], default=None)
    with ExitStack() as alive:
        plans: dict[str, list[Opener]] = {}
        for name in arms:
            folder = alive.enter_context(TemporaryDirectory(prefix="benchmark-"))
            plans[name] = openers(name, workload, Path(folder), best)
        running: dict[str, Runner] = {}
        for name, plan in plans.items():
            if one_at_a_time:
                running[name] = _ShortLived(name, workload, best, warm_up_steps)
                continue
            print(f"setting up {name}", flush=True)
            running[name] = alive.enter_context(closing(Arm(name, plan, warm_up_steps)))
        trials: list[Trial] = []
        for trial in run_trials(running, repeats, steps):
            print(trial.progress, flush=True)
            trials.append(trial)
    return Comparison(workload, tuple(trials), layouts)


def layout_seconds(workload: Workload) -> dict[Layout, float]:
    """Measure a step of the loop in memory in every layout: the faster one of two.

    Layouts nearly as fast as the fastest are measured again, minutes later, since the speed of a
    host drifts by more than they differ; the mean of both measurements counts.
    """
    seconds = {layout: _fastest_step(workload, layout) for layout in workload.layouts}
    limit = _NEARLY * min(seconds.values())
    for layout in [each for each, s in seconds.items() if s <= limit]:
        seconds[layout] = mean([seconds[layout], _fastest_step(workload, layout)])
    return seconds


def _fastest_step(workload: Workload, layout: Layout) -> float:
    """Return the seconds of the faster one of two steps."""
    with closing(Arm("best", openers("best", workload, Path(), layout))) as arm:
        seconds = min(arm.run(1) for _ in range(2))
    print(f"in memory, {layout}: {seconds:.3f} s/step", flush=True)
    return seconds


@dataclass(frozen=True)
class _ShortLived:
    """Arm that is set up and warmed up for each of its trials and ended after it."""

    name: str
    workload: Workload
    best: Layout | None
    warm_up_steps: int

    def run(self, steps: int) -> float:
        with TemporaryDirectory(prefix="benchmark-") as folder:
            plan = openers(self.name, self.workload, Path(folder), self.best)
            with closing(Arm(self.name, plan, self.warm_up_steps)) as arm:
                return arm.run(steps)


def _measure(options: argparse.Namespace) -> None:
    if options.precision == "bf16" and not has_fast_bf16():
        print("warning: this CPU has no bf16 instructions; expect bf16 to be many times slower")
    comparisons: list[dict[str, Any]] = []
    result = {
        **new_result("streamed training against not streaming, on the same cores"),
        "parameters": workload_of(options, options.batch_sizes[0]).num_parameters(),
        "repeats": options.repeats,
        "steps": options.steps,
        "one_at_a_time": options.one_at_a_time,
        "warm_up_steps": options.warm_up_steps,
        "comparisons": comparisons,
    }
    groups = list(product(options.batch_sizes, options.arms or GROUPS))
    for batch_size, arms in groups:  # a wrong name is found before anything is measured
        for name in arms:
            openers(name, workload_of(options, batch_size), Path())
    layouts: dict[Workload, dict[Layout, float]] = {}
    for batch_size, arms in groups:
        workload = workload_of(options, batch_size)
        if "best" in arms and workload not in layouts:
            layouts[workload] = layout_seconds(workload)
        comparison = compare(
            workload,
            arms,
            options.repeats,
            options.steps,
            options.one_at_a_time,
            options.warm_up_steps,
            layouts.get(workload, {}),
        )
        print(f"\n{comparison.table()}\n", flush=True)
        comparisons.append(comparison.as_json())
        write_json(options.json, result)  # keep finished comparisons if a later one fails


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        parents=[workload_flags()],
        prog="python -m benchmarks.streaming",
        description=(__doc__ or "").partition("\n")[0],
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    measurement = parser.add_argument_group("measurement")
    measurement.add_argument("--json", type=new_file, required=True, help="where results go")
    measurement.add_argument(
        "--arms",
        nargs="+",
        action="append",
        metavar="ARM",
        help="a group of arms (benchmarks.streaming.arms) that are alive together; may be given "
        "repeatedly "
        f"(default: {'; '.join(map(' '.join, GROUPS))})",
    )
    measurement.add_argument("--repeats", type=positive, default=3, help="trials of each arm")
    measurement.add_argument("--steps", type=positive, default=2, help="training steps in a trial")
    measurement.add_argument(
        "--one_at_a_time",
        action="store_true",
        help="set an arm up for each of its trials, for arms that exceed the memory together",
    )
    measurement.add_argument(
        "--warm_up_steps",
        type=positive,
        default=1,
        help="steps of an arm that is set up, before its first trial; the memory of a system of "
        "98M parameters grows for eight steps, most in the third",
    )
    measurement.add_argument("--batch_sizes", nargs="+", type=positive, default=[8, 16])
    return parser


if __name__ == "__main__":
    sys.exit(main())
