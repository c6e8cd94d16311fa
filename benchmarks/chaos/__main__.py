"""Train under random faults of all kinds and roles; the weights must be those without faults.

    python -m benchmarks.chaos --faults 200 --seed 1 --json benchmarks/results/chaos.json

Faults of roles happen inside their processes (appliance.faults); the user's process is killed from
outside, and those of Ray are killed, stopped and starved. Whenever run.py ends, the same command is
started again.
"""

from __future__ import annotations

import argparse
import itertools
import random
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, get_args

from appliance.faults.plan import DRAWN, NEEDS_A_PROCESS, FaultLog, FaultPlan, Kind
from benchmarks.chaos.leftovers import Census
from benchmarks.chaos.outcome import describe, hits_of, outcome
from benchmarks.chaos.training import OF_RAY, OUTSIDE, Kill, Training
from benchmarks.chaos.workload import ROLES, Workload
from waferstream.core.config import validate
from waferstream.core.errors import WaferStreamError
from waferstream.host.files import write_json
from waferstream.host.interrupts import ended_within
from waferstream.reports.benchmark import new_file, new_result, positive

_QUESTION = "Are the weights after random faults those without faults, and what does each cost?"
_OUTSIDE_SHARE = 14  # one fault in so many hits a process that is no role
_STEPS_PER_FAULT = 5
_END_S = 60.0  # after Ctrl-C or SIGTERM


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


if __name__ == "__main__":
    sys.exit(main())
