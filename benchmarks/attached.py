"""Measure what a step costs more where the program has its cluster at the end of a connection.

    python -m benchmarks.attached --json benchmarks/results/attached.json

Arms: ``embedded`` (the cluster is in this process) and ``attached`` (in a server on this host, over
gRPC and TLS). Both train the same steps, each as a job of its own, which is the most that a
connection can cost; trials alternate. The processor time of both processes counts, which other work
on the host does not change.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path

import torch

from appliance.coordinator.commands import HashWeights
from appliance.elaboration.elaborate import ClusterSize
from appliance.remote.access import Access, read_access
from appliance.remote.cluster import start_remote
from appliance.spec import ClusterSpec, RuntimeSpec
from benchmarks.processes import busy_below
from benchmarks.streaming.comparison import run_trials, seconds_per_step, speed_ratio
from benchmarks.streaming.workload import Workload
from benchmarks.training import Training
from waferstream.host.files import write_json
from waferstream.reports.benchmark import new_file, new_result, positive

_SIZE = ClusterSize(num_csx=1, num_servers=1)
_SPEC = ClusterSpec(runtime=RuntimeSpec(kind="local"))


class _Arm:
    """A cluster that goes on training, one job for each step."""

    def __init__(self, training: Training) -> None:
        self._training = training
        self.cluster = training.cluster
        training.load()

    def run(self, steps: int) -> float:
        """Train; return the seconds of processor time of this process and those below it."""
        start_s = _busy_s()
        for _ in range(steps):
            self._training.run(1)
        return _busy_s() - start_s


def _busy_s() -> float:
    return sum(each.busy_s for each in busy_below(os.getpid()))


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, write JSON; return the exit status."""
    options = _parser().parse_args(arguments)
    torch.set_num_threads(1)
    workload = Workload(options.hidden, options.layers, 256, 32, 4, "fp32", 1)
    result = new_result(
        "processor time of a step of an attached program, over that of an embedded one"
    )
    with tempfile.TemporaryDirectory() as folder, _server(Path(folder)) as access:
        start = partial(start_remote, access)
        arms = {
            "embedded": _Arm(Training(workload, _SIZE, _SPEC)),
            "attached": _Arm(Training(workload, _SIZE, _SPEC, start=start)),
        }
        try:
            for arm in arms.values():
                arm.run(1)  # optimizer state is allocated
            trials = list(run_trials(arms, options.repeats, options.steps))
            assert len({arm.cluster.do(HashWeights()) for arm in arms.values()}) == 1
        finally:
            for arm in arms.values():
                arm.cluster.shutdown()
    seconds = seconds_per_step(trials)
    ratio = speed_ratio(seconds["embedded"], seconds["attached"])
    medians = {name: sorted(own)[len(own) // 2] for name, own in seconds.items()}
    added_ms = (medians["attached"] - medians["embedded"]) * 1000
    print(f"attached {ratio.median:.3f} ({ratio.min:.3f}-{ratio.max:.3f}) of embedded")
    print(f"a job of {medians['embedded'] * 1000:.1f} ms computes {added_ms:.1f} ms more")
    if options.json is not None:
        measured = {
            "workload": asdict(workload),
            "parameters": workload.num_parameters(),
            "trials": [asdict(trial) for trial in trials],
            "time_over_embedded": asdict(ratio),
            "added_ms_per_job": added_ms,
        }
        write_json(options.json, result | measured)
    return 0


@contextmanager
def _server(folder: Path) -> Iterator[Access]:
    """Run a server with a cluster in its own process; yield the right to use it."""
    cluster, credentials = folder / "cluster.yaml", folder / "access.json"
    cluster.write_text("runtime: {kind: local}\n")
    words = ["cluster", "serve", "--cluster", cluster, "--credentials", credentials]
    command = [sys.executable, "-m", "waferstream", *map(str, words)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None, "it is a pipe"
    try:
        access = read_access(process.stdout.readline().split()[0], credentials)
        assert access is not None, "the server has written it before it says where it listens"
        yield access
    finally:
        process.terminate()
        process.wait(20)
        process.stdout.close()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0], allow_abbrev=False)
    parser.add_argument("--hidden", type=positive, default=128)
    parser.add_argument("--layers", type=positive, default=4)
    parser.add_argument("--repeats", type=positive, default=7)
    parser.add_argument("--steps", type=positive, default=10, help="of a trial, a job each")
    parser.add_argument("--json", type=new_file, help="file for the result")
    return parser


if __name__ == "__main__":
    sys.exit(main())
