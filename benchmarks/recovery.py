"""Measure how fast a run recovers from lost roles, and how much of its time it keeps.

    python -m benchmarks.recovery --json benchmarks/results/recovery.json

Recovery: a small GPT trains on Ray while systems, switches and input workers are killed (SIGKILL)
at given steps. The seconds are those of the log: from the failure of the job until its rest begins.
Weights must be those of a local run in which nobody is killed.

Goodput: equal numbers of steps on Ray in turn, a minute undisturbed, then with a kill; it is the
share of the first time in the second, the median over neighbours. What a kill costs is stated in
parts: those of the recovery, the step in flight, which runs again, and the rest: noticing the loss,
and steps of another speed. What protection costs without a loss is asked by benchmarks.protection.
"""

from __future__ import annotations

import argparse
import logging
import statistics
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import cycle
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any, NamedTuple

import cstorch
from appliance.faults.plan import Fault, FaultPlan
from appliance.spec import AutoRestart, ClusterSpec, RuntimeSpec
from benchmarks.streaming.cluster_training import training_on
from benchmarks.streaming.workload import Workload
from waferstream.core.events import Recovered, RecoveryDecided
from waferstream.host.files import write_json
from waferstream.machine.hardware import MachineSpec, SwarmXSpec
from waferstream.reports.benchmark import new_file, new_result, positive

_NUM_CSX = 4
_VICTIMS = ("csx-1", "br-0", "br-1", "wrk-0")
_STEPS_BETWEEN = 10
_FAULT_S = 60.0
_WARM_UP = 50
_RESTARTS = AutoRestart(max_num_restarts=3)
_SMALL = Workload(64, 2, 256, 32, 8, "fp32", cores=2)


class Recoveries(logging.Handler):
    """The seconds of each recovery by role and by part, from the events of the log."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds: dict[str, list[float]] = {}
        self.parts: dict[str, list[float]] = {}
        self._role = ""

    def emit(self, record: logging.LogRecord) -> None:
        match record.msg:
            case RecoveryDecided(lost=(role, *_)):
                self._role = role
            case Recovered(duration):
                self.seconds.setdefault(self._role, []).append(duration.total_s)
                for part, seconds in duration.parts.items():
                    self.parts.setdefault(part, []).append(seconds)


@contextmanager
def noted() -> Iterator[Recoveries]:
    """Note the recoveries in the block."""
    recoveries, log = Recoveries(), logging.getLogger("waferstream")
    log.addHandler(recoveries)
    try:
        yield recoveries
    finally:
        log.removeHandler(recoveries)


class Training(NamedTuple):
    """A training of a workload on a new cluster."""

    backend: cstorch.Backend
    run: Callable[[int], None]
    """Trains so many further steps in one job."""


@contextmanager
def opened(runtime: RuntimeSpec, autorestart: AutoRestart | None) -> Iterator[Training]:
    """Open a cluster for a training."""
    cstorch.amp.enable_mixed_precision(False)
    machine = MachineSpec(swarmx=SwarmXSpec(fan_out=2))
    cluster = ClusterSpec(machine=machine, runtime=runtime)
    config = cstorch.ClusterConfig(num_csx=_NUM_CSX, cluster=cluster, autorestart=autorestart)
    backend = cstorch.backend("CSX", cluster_config=config)
    try:
        yield Training(backend, training_on(backend, _SMALL))
    finally:
        backend.shutdown()
        cstorch.backends.reset()


def measure_recovery(rounds: int) -> dict[str, Any]:
    """Kill every kind of role ``rounds`` times; return seconds by role, and both digests."""
    steps = [(n + 1) * _STEPS_BETWEEN for n in range(rounds * len(_VICTIMS))]
    faults = _kills_at(steps)
    with TemporaryDirectory(prefix="benchmark-") as folder, noted() as recoveries:
        plan = FaultPlan(stated=faults, folder=Path(folder))
        digest = _digest(RuntimeSpec(kind="ray", faults=plan), _RESTARTS, steps)
    every = [second for seconds in recoveries.seconds.values() for second in seconds]
    return {
        "seconds": recoveries.seconds,
        "parts": {part: statistics.median(all_) for part, all_ in recoveries.parts.items()},
        "median_s": statistics.median(every),
        "max_s": max(every),
        "kills": len(faults),
        "digest": digest,
        "digest_without_faults": _digest(RuntimeSpec(kind="local"), None, steps),
    }


def _kills_at(steps: Sequence[int]) -> tuple[Fault, ...]:
    """Return kills of each kind of role in turn."""
    return tuple(
        Fault(role=role, step=step, kind="kill")
        for step, role in zip(steps, cycle(_VICTIMS), strict=False)
    )


def _digest(runtime: RuntimeSpec, autorestart: AutoRestart | None, kills: Sequence[int]) -> str:
    with opened(runtime, autorestart) as training:
        training.run(kills[-1] + _STEPS_BETWEEN)
        return training.backend.weights_digest()


def measure_goodput(minutes: int) -> dict[str, Any]:
    """Train on Ray, in turn for a minute and for as many steps with a kill among them."""
    with opened(RuntimeSpec(kind="ray"), _RESTARTS) as training:
        training.run(_WARM_UP)
        step_s = _seconds_of(training, _WARM_UP) / _WARM_UP
    steps = round(_FAULT_S / step_s)
    faults = _kills_at([_WARM_UP + (2 * n + 1) * steps + steps // 2 for n in range(minutes)])
    with TemporaryDirectory(prefix="benchmark-") as folder, noted() as recoveries:
        plan = FaultPlan(stated=faults, folder=Path(folder))
        with opened(RuntimeSpec(kind="ray", faults=plan), _RESTARTS) as training:
            training.run(_WARM_UP)
            pairs = [
                (_seconds_of(training, steps), _seconds_of(training, steps)) for _ in range(minutes)
            ]
    parts = {part: sum(all_) / len(faults) for part, all_ in recoveries.parts.items()}
    parts["step in flight"] = step_s  # at most: it runs again
    lost_s = statistics.median(faulty_s - quiet_s for quiet_s, faulty_s in pairs)
    return {
        "steps": steps,
        "kills": len(faults),
        "seconds": {"without": [one for one, _ in pairs], "with": [other for _, other in pairs]},
        "goodput": statistics.median(quiet_s / faulty_s for quiet_s, faulty_s in pairs),
        "lost_s_per_kill": lost_s,
        "parts_s_per_kill": parts | {"noticing, and slower steps": lost_s - sum(parts.values())},
    }


def _seconds_of(training: Training, steps: int) -> float:
    start_s = perf_counter()
    training.run(steps)
    return perf_counter() - start_s


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, write JSON; return the exit status."""
    options = _parser().parse_args(arguments)
    logging.getLogger("waferstream").setLevel(logging.WARNING)
    result = new_result("seconds to replace a lost role, and goodput with a kill a minute")
    recovery = measure_recovery(options.rounds)
    for role, seconds in recovery["seconds"].items():
        print(f"{role}: median {statistics.median(seconds):.1f} s, max {max(seconds):.1f} s")
    print(f"parts of a recovery, median: {_described(recovery['parts'])}")
    goodput = measure_goodput(options.minutes)
    print(f"goodput with a kill a minute: {goodput['goodput']:.1%}, {goodput['steps']} steps each")
    print(f"a kill costs {goodput['lost_s_per_kill']:.2f} s, made of")
    print(_described(goodput["parts_s_per_kill"]))
    is_same = recovery["digest"] == recovery["digest_without_faults"]
    print(f"weights {'equal' if is_same else 'DIFFER FROM'} those without a fault")
    if options.json is not None:
        write_json(options.json, result | {"recovery": recovery, "goodput": goodput})
    return 0 if is_same else 1


def _described(parts: Mapping[str, float]) -> str:
    return ", ".join(f"{part} {seconds:.2f} s" for part, seconds in parts.items())


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0], allow_abbrev=False)
    parser.add_argument("--rounds", type=positive, default=3, help="times that each role is killed")
    parser.add_argument(
        "--minutes", type=positive, default=5, help="kills of the goodput; each takes two minutes"
    )
    parser.add_argument("--json", type=new_file, help="file for the result")
    return parser


if __name__ == "__main__":
    sys.exit(main())
