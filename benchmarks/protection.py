"""Measure what protection from lost processes costs in a step: nothing lost, three arms.

    python -m benchmarks.protection --json benchmarks/results/protection.json

Arms: ``off`` (no autorestart), ``replay`` (lost weight servers are computed again) and ``replica``
(every weight server has a replica). Each is a cluster in this process that trains the same steps;
trials alternate. The processor time of all roles counts, which other work on the host does not
change: on a host whose cores are all busy, that is the time of the step.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from time import process_time
from typing import Any

import torch

from appliance.coordinator.commands import HashWeights
from appliance.elaboration.elaborate import ClusterSize
from appliance.spec import AutoRestart, ClusterSpec, RuntimeSpec
from benchmarks.streaming.comparison import Trial, run_trials, seconds_per_step, speed_ratio
from benchmarks.streaming.workload import Workload
from benchmarks.training import Training
from waferstream.host.files import write_json
from waferstream.reports.benchmark import new_file, new_result, positive

_ARMS: Mapping[str, tuple[AutoRestart | None, bool]] = {
    "off": (None, False),
    "replay": (AutoRestart(max_num_restarts=1), False),
    "replica": (AutoRestart(max_num_restarts=1), True),
}
"""Restarts and replicas of each arm."""

_NUM_SERVERS = 2


class _Arm:
    """A cluster in this process that goes on training."""

    def __init__(self, training: Training) -> None:
        self._training = training
        self.cluster = training.cluster
        training.load()

    def run(self, steps: int) -> float:
        """Train; return the seconds of processor time."""
        start_s = process_time()
        self._training.run(steps)
        return process_time() - start_s


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, write JSON; return the exit status."""
    options = _parser().parse_args(arguments)
    torch.set_num_threads(1)
    workload = Workload(
        options.hidden, options.layers, options.vocab, options.tokens, options.batch, "fp32", 1
    )
    result = new_result("processor time of a step with protection, over that without")
    arms = {name: _start(workload, *protection) for name, protection in _ARMS.items()}
    digests = set()
    trials: list[Trial] = []
    try:
        for arm in arms.values():
            arm.run(1)  # optimizer state and before-images are allocated
        for trial in run_trials(arms, options.repeats, options.steps):
            trials.append(trial)
            print(trial.progress, flush=True)
        digests = {arm.cluster.do(HashWeights()) for arm in arms.values()}
    finally:
        for arm in arms.values():
            arm.cluster.shutdown()
    assert len(digests) == 1, "protection changed a weight"
    seconds = seconds_per_step(trials)
    ratios = {name: speed_ratio(seconds["off"], own) for name, own in seconds.items()}
    for name, ratio in ratios.items():
        print(f"{name:<8} {ratio.median:.3f} ({ratio.min:.3f}-{ratio.max:.3f}) of off")
    if options.json is not None:
        measured: dict[str, Any] = {
            "workload": asdict(workload),
            "parameters": workload.num_parameters(),
            "weight_servers": _NUM_SERVERS,
            "trials": [asdict(trial) for trial in trials],
            "time_over_off": {name: asdict(ratio) for name, ratio in ratios.items()},
        }
        write_json(options.json, result | measured)
    return 0


def _start(workload: Workload, autorestart: AutoRestart | None, has_replicas: bool) -> _Arm:
    """Start a cluster with the program and the weights of a workload."""
    size = ClusterSize(1, num_servers=_NUM_SERVERS, has_replicas=has_replicas)
    spec = ClusterSpec(runtime=RuntimeSpec(kind="local"))
    return _Arm(Training(workload, size, spec, autorestart))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0], allow_abbrev=False)
    parser.add_argument("--hidden", type=positive, default=256)
    parser.add_argument("--layers", type=positive, default=8)
    parser.add_argument("--vocab", type=positive, default=4096)
    parser.add_argument("--tokens", type=positive, default=256, help="of a sample")
    parser.add_argument("--batch", type=positive, default=8, help="samples of a step")
    parser.add_argument("--repeats", type=positive, default=5)
    parser.add_argument("--steps", type=positive, default=2, help="of a trial")
    parser.add_argument("--json", type=new_file, help="file for the result")
    return parser


if __name__ == "__main__":
    sys.exit(main())
