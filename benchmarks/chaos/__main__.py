"""Train under random faults of all kinds and roles; the weights must be those without faults.

    python -m benchmarks.chaos --faults 200 --seed 1 --json benchmarks/results/chaos.json

Faults of roles happen inside their processes (appliance.faults); the user's process is killed from
outside, and those of Ray are killed, stopped and starved. Whenever run.py ends, the same command is
started again.
"""

from __future__ import annotations

import argparse
import itertools
import math
import random
import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median
from tempfile import TemporaryDirectory
from typing import Any, get_args

from appliance.faults.plan import DRAWN, NEEDS_A_PROCESS, Fault, FaultLog, FaultPlan, Kind
from benchmarks.chaos.leftovers import Census
from benchmarks.chaos.training import OF_RAY, OUTSIDE, Course, Kill, Training
from benchmarks.chaos.workload import ROLES, Workload
from waferstream.core.config import validate
from waferstream.core.errors import WaferStreamError
from waferstream.core.units import aligned
from waferstream.host.files import write_json
from waferstream.host.interrupts import ended_within
from waferstream.reports.benchmark import new_file, new_result, positive

_QUESTION = "Are the weights after random faults those without faults, and what does each cost?"
_OUTSIDE_SHARE = 14  # one fault in so many hits a process that is no role
_STEPS_PER_FAULT = 5
_END_S = 60.0  # after Ctrl-C or SIGTERM

_MINUTE_S = 60.0
_FOLDER = re.compile(r"/\S*/")


def main(arguments: Sequence[str] | None = None) -> int:
    """Train, print the figures, write JSON; the exit status is 1 if something was lost or left."""
    options = _parser().parse_args(arguments)
    result = new_result(_QUESTION)
    try:
        with ended_within(_END_S), TemporaryDirectory(prefix="waferstream-chaos-") as folder:
            figures = train_under_faults(options, Path(folder))
    except WaferStreamError as error:
        print(error, file=sys.stderr)
        return 1
    print(describe(figures))
    if options.json:
        named = {"seed": options.seed, "kinds": options.kinds, "restarts": options.restarts}
        write_json(options.json, result | named | figures)
    return 0 if figures["is_equal"] and not figures["left_behind"] else 1


def train_under_faults(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Train with and without faults; return the figures.

    Raises:
        WaferStreamError: The training did not end, however often it was started.
    """
    steps = options.steps or max(20, _STEPS_PER_FAULT * options.faults)
    workload = Workload(steps, num_restarts=options.restarts)
    num_outside = options.faults // _OUTSIDE_SHARE if options.cluster == "ray" else 0
    drawn = {
        "count": options.faults - num_outside,
        "seed": options.seed,
        "last_step": steps - workload.steps_per_job,
        "kinds": _kinds(options),
    }
    plan = validate(FaultPlan, {"random": drawn, "folder": folder / "faults"}, "--faults")
    flags = workload.write(folder / "chaos", options.cluster, plan.model_dump(mode="json"))
    census = Census(folder)
    training = Training(flags, _kills(num_outside, steps, options.seed), census, 2 + options.faults)
    try:
        course = training.run()
    finally:
        if options.log:
            options.log.write_text("\n".join(training.course.log) + "\n")
    names = ROLES if options.cluster == "ray" else ROLES[:-1]
    hits = hits_of(course, plan.faults(names), FaultLog(folder / "faults"))
    left = census.left()
    quiet = Training(workload.write(folder / "quiet", "local", {}), [], census, 1).run()
    return outcome(course, hits, options.faults, quiet.digest, left)


def _kinds(options: argparse.Namespace) -> list[Kind]:
    """Return the kinds that may happen on the chosen kind of cluster."""
    apart = NEEDS_A_PROCESS if options.cluster == "local" else ()
    return [kind for kind in options.kinds if kind not in apart]


def _kills(count: int, steps: int, seed: int) -> list[Kill]:
    """Return hits of the processes that are no roles, in turn, spread over the training."""
    draw = random.Random(seed)
    hits = [
        (name, kind) for kind in OF_RAY for name in OUTSIDE if name != "driver" or kind == "kill"
    ]
    turns = itertools.islice(itertools.cycle(hits), count)
    return [Kill(target, draw.randrange(1, steps - 5), kind) for target, kind in turns]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.chaos", description=_QUESTION)
    parser.add_argument("--faults", type=positive, default=20, help="number of faults")
    parser.add_argument("--seed", type=int, default=0, help="equal seeds draw equal faults")
    parser.add_argument(
        "--cluster",
        choices=("ray", "local"),
        default="ray",
        help="local: all roles in one process, where roles fail but processes do not",
    )
    parser.add_argument("--steps", type=positive, help="training steps (default: 5 per fault)")
    parser.add_argument(
        "--kinds", nargs="+", choices=get_args(Kind), default=list(DRAWN), metavar="KIND"
    )
    parser.add_argument(
        "--restarts",
        type=int,
        default=1_000_000,
        help="restarts that the run may do by itself; 0: it ends at each fault",
    )
    parser.add_argument("--json", type=new_file, help="where the figures go")
    parser.add_argument("--log", type=new_file, help="where the output of all commands goes")
    return parser


@dataclass(frozen=True)
class Hit:
    """A fault that happened, and the seconds until the step in progress was done.

    After a hit on a process that is no role, steps go on until it is noticed: then it is the
    longest time without a new step until the next fault.
    """

    target: str
    kind: str
    step: int
    recovery_s: float


def hits_of(course: Course, faults: Iterable[Fault], log: FaultLog) -> list[Hit]:
    """Return everything that happened in a course, in the order of time."""
    times: list[tuple[float, str, str, int]] = [
        (at, fault.role, fault.kind, fault.step) for fault in faults for at in log.happened(fault)
    ]
    times += [(at, kill.target, kill.kind, kill.step) for at, kill in course.kills]
    times.sort()
    ends = [*[at for at, *_ in times[1:]], math.inf]
    news = _new_steps(course, log)
    hits = []
    for (at, target, kind, step), end in zip(times, ends, strict=True):
        later = [new for new in news if new >= at]
        if later:
            until = [new for new in later[1:] if new < end] if target in OUTSIDE else []
            if target in OUTSIDE and later[0] < end < later[-1]:
                until.append(end)  # what is still missing then is the time of the next fault
            longest = max(b - a for a, b in itertools.pairwise([at, later[0], *until]))
            hits.append(Hit(target, kind, step, longest))
    return hits


def _new_steps(course: Course, log: FaultLog) -> list[float]:
    """Return the times at which a step was done that had not been done before.

    A step is done when gradients of the next one arrive, or when it is reported.
    """
    done = [(at, step) for at, step in course.reported]
    done += [(at, step - 1) for at, step in log.progress()]
    highest, times = 0, []
    for at, step in sorted(done):
        if step > highest:
            highest = step
            times.append(at)
    return times


def step_seconds(course: Course) -> float:
    """Return the median seconds of a step between two reports of one start."""
    pairs = zip(course.reported, course.reported[1:], strict=False)
    return median((b - a) / (after - before) for (a, before), (b, after) in pairs if after > before)


def outcome(
    course: Course, hits: Sequence[Hit], num_faults: int, digest: str, left: dict[str, list[str]]
) -> dict[str, Any]:
    """Return the figures of a run.

    Args:
        course: The training under faults.
        hits: What happened in it.
        num_faults: How many faults were planned.
        digest: The weights without faults.
        left: What was left behind.
    """
    recoveries = [hit.recovery_s for hit in hits]
    (first_s, _), (last_s, last_step) = course.reported[0], course.reported[-1]
    useful_s = last_step * step_seconds(course)
    return {
        "faults_planned": num_faults,
        "faults_happened": len(hits),
        "recovery_s": _spread(recoveries),
        "by_kind": {kind: _spread(own) for kind, own in _grouped(hits, "kind").items()},
        "by_role": {role: _spread(own) for role, own in _grouped(hits, "target").items()},
        "starts_of_the_command": len(course.starts),
        "recoveries_without_a_start": course.num_recoveries,
        "steps": last_step,
        "steps_repeated": course.num_repeated_steps,
        "goodput": min(1.0, useful_s / (last_s - first_s)),
        "goodput_at_a_fault_a_minute": _MINUTE_S / (_MINUTE_S + mean(recoveries or [0.0])),
        "digest": course.digest,
        "digest_without_faults": digest,
        "is_equal": course.digest == digest,
        "left_behind": left,
        "errors": sorted({_FOLDER.sub("", error) for error in course.errors}),
    }


def describe(figures: dict[str, Any]) -> str:
    """Return the figures as text for a terminal."""
    rows = [("fault", "hits", "median s", "max s")]
    for group in ("by_kind", "by_role"):
        for name, spread in sorted(figures[group].items()):
            rows.append((name, *(f"{spread[key]:g}" for key in ("count", "median", "max"))))
    lines = [*aligned(rows), ""]
    for name in (
        "faults_happened", "starts_of_the_command", "recoveries_without_a_start", "steps",
        "steps_repeated", "goodput", "goodput_at_a_fault_a_minute", "left_behind", "digest",
        "digest_without_faults", "is_equal",
    ):  # fmt: skip
        figure = figures[name]
        shown = f"{figure:.1%}" if isinstance(figure, float) else figure
        lines.append(f"{name.replace('_', ' ')}: {shown}")
    return "\n".join(lines)


def _grouped(hits: Sequence[Hit], name: str) -> dict[str, list[float]]:
    groups: dict[str, list[float]] = {}
    for hit in hits:
        groups.setdefault(getattr(hit, name), []).append(hit.recovery_s)
    return groups


def _spread(values: Sequence[float]) -> dict[str, float]:
    if not values:
        return {"count": 0, "median": 0.0, "max": 0.0}
    return {
        "count": len(values),
        "median": round(median(values), 2),
        "max": round(max(values), 2),
    }


if __name__ == "__main__":
    sys.exit(main())
