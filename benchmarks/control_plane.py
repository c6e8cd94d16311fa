"""Measure how the control plane grows with the number of systems, in one process.

    python -m benchmarks.control_plane --json benchmarks/results/control_plane.json

A local cluster of each size trains a model so small that kernels take next to no time, one
micro-batch a system, in a process of its own. What is counted is exact: messages, the bytes of
their payloads, threads, descriptors. Processor time and resident memory are measured; other work on
the host adds some tenths. Between two sizes a total grows as a power of the number of roles, whose
exponent is printed; 1 is linear. With ``--protected`` every step is a transaction.
"""

from __future__ import annotations

import argparse
import gc
import math
import multiprocessing
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch

from appliance.coordinator.cluster import Cluster
from appliance.elaboration.elaborate import ClusterSize
from appliance.local import LocalRoles
from appliance.plan import ClusterPlan
from appliance.spec import AutoRestart, ClusterSpec, RuntimeSpec
from benchmarks.streaming.workload import Workload
from benchmarks.training import Training
from waferstream.core.messages.messages import Envelope
from waferstream.core.roles.role import (
    Command,
    Job,
    Report,
    Role,
    RoleContext,
    RoleSpec,
    RunningJob,
    Waiting,
)
from waferstream.core.units import MIB
from waferstream.host.files import write_json
from waferstream.reports.benchmark import new_file, new_result, positive

_SPEC = ClusterSpec(runtime=RuntimeSpec(kind="local"))
_STEPS = 2
"""Steps that are measured, behind one in which optimizer and caches get their memory."""

_SUPERLINEAR = 1.15
"""An exponent from which a total grows faster than linear."""

_LEAST_S = 0.5
"""Seconds below which a time is noise."""


@dataclass
class Tally:
    """Messages that roles have sent, and the bytes that their payloads name."""

    by_kind: Counter[str] = field(default_factory=Counter)
    by_role: Counter[str] = field(default_factory=Counter)  # sent or received
    payload_bytes: int = 0

    def note(self, messages: Iterator[Envelope]) -> Iterator[Envelope]:
        """Count messages and pass them on."""
        for envelope in messages:
            self.by_kind[type(envelope.message).__name__] += 1
            self.by_role.update((envelope.source, envelope.target))
            payload = getattr(envelope.message, "payload", None)
            self.payload_bytes += 0 if payload is None else payload.num_bytes
            yield envelope


@dataclass(frozen=True)
class CountedSpec:
    """How to build a role whose messages are counted."""

    spec: RoleSpec
    tally: Tally

    @property
    def name(self) -> str:
        """The role's name."""
        return self.spec.name

    def build(self, context: RoleContext) -> Role:
        """Build the role in its shell."""
        return Counted(self.spec.build(context), self.tally)


class Counted:
    """The shell of a role."""

    def __init__(self, role: Role, tally: Tally) -> None:
        self.name, self._role, self._tally = role.name, role, tally

    def do(self, command: Command[Any]) -> Any:
        """Let the role do what a command says."""
        return self._role.do(command)

    def begin(self, job: Job) -> RunningJob:
        return CountedJob(self._role.begin(job), self._tally)


class CountedJob:
    """The shell of a running job."""

    def __init__(self, job: RunningJob, tally: Tally) -> None:
        self._job, self._tally = job, tally

    @property
    def finished(self) -> bool:
        """Whether the role has done its part."""
        return self._job.finished

    @property
    def is_working(self) -> bool:
        """Whether other threads compute for the role."""
        return self._job.is_working

    def start(self) -> Iterator[Envelope]:
        return self._tally.note(self._job.start())

    def handle(self, envelope: Envelope) -> Iterator[Envelope]:
        return self._tally.note(self._job.handle(envelope))

    def work(self) -> Iterator[Envelope]:
        return self._tally.note(self._job.work())

    def leave(self) -> None:
        self._job.leave()

    def report(self) -> Report:
        return self._job.report()

    def waits_for(self) -> Waiting:
        return self._job.waits_for()


@dataclass(frozen=True)
class Point:
    """What a cluster of one size takes.

    ``start_s`` are the processor seconds of each phase of a start, ``step_s`` those of a step.
    ``messages`` are those of a step by kind, ``most_messages`` those of its busiest role. Threads,
    descriptors and ``resident_bytes`` are what the cluster has added.
    """

    num_csx: int
    num_roles: int
    messages: dict[str, int]
    most_messages: int
    busiest: str
    payload_bytes: int
    start_s: Mapping[str, float]
    step_s: float
    resident_bytes: int
    threads: int
    descriptors: int

    @property
    def totals(self) -> dict[str, float]:
        """What should grow as the roles do."""
        return {
            "messages": sum(self.messages.values()),
            "payload bytes": self.payload_bytes,
            **{f"processor time: {phase}": seconds for phase, seconds in self.start_s.items()},
            "processor time: step": self.step_s,
            "resident memory": self.resident_bytes,
        }


def measure(num_csx: int, servers: int, workers: int, *, is_protected: bool = False) -> Point:
    """Start a local cluster, train, and return what it takes; it ends before this returns."""
    tally, roles = Tally(), list[str]()
    before = _Host.now()
    phases = _Phases()

    def start(plan: ClusterPlan) -> Cluster:
        phases.end("compile")
        specs = [CountedSpec(spec, tally) for spec in plan.roles(num_csx)]
        roles.extend(spec.name for spec in specs)
        phases.end("elaborate")
        cluster = plan.coordinator(LocalRoles(specs))
        phases.end("build")
        return cluster

    workload = Workload(8, 1, 16, 4, num_csx, "fp32", 1, micro_batch=1)
    size = ClusterSize(num_csx, servers, workers)
    restarts = AutoRestart(max_num_restarts=1) if is_protected else None
    training = Training(workload, size, _SPEC, restarts, start)
    training.load()
    phases.end("install")
    training.run(1)
    phases.end("first step")
    after, sent = _Host.now(), Tally(tally.by_kind.copy(), tally.by_role.copy())
    sent.payload_bytes = tally.payload_bytes
    begin_s = time.process_time()
    training.run(_STEPS)
    step_s = (time.process_time() - begin_s) / _STEPS
    training.cluster.shutdown()
    ((busiest, most),) = (tally.by_role - sent.by_role).most_common(1)
    return Point(
        num_csx=num_csx,
        num_roles=len(roles),
        messages={k: n // _STEPS for k, n in (tally.by_kind - sent.by_kind).items()},
        most_messages=most // _STEPS,
        busiest=busiest,
        payload_bytes=(tally.payload_bytes - sent.payload_bytes) // _STEPS,
        start_s=phases.seconds,
        step_s=step_s,
        resident_bytes=after.resident_bytes - before.resident_bytes,
        threads=after.threads - before.threads,
        descriptors=after.descriptors - before.descriptors,
    )


class _Phases:
    """Processor seconds by phase."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._begin_s = time.process_time()

    def end(self, phase: str) -> None:
        """Note that a phase ends, and the next one begins."""
        now_s = time.process_time()
        self.seconds[phase] = now_s - self._begin_s
        self._begin_s = now_s


@dataclass(frozen=True)
class _Host:
    """What this process has of its host."""

    resident_bytes: int
    threads: int
    descriptors: int

    @classmethod
    def now(cls) -> _Host:
        """Return what it has now (proc_pid_statm(5))."""
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        descriptors = len(os.listdir("/proc/self/fd"))
        return cls(pages * os.sysconf("SC_PAGE_SIZE"), threading.active_count(), descriptors)


def exponents(points: Sequence[Point]) -> list[dict[str, float]]:
    """Return, for each two neighbouring sizes, the power of the roles with which totals grow."""
    found = []
    for few, many in pairwise(points):
        growth = math.log(many.num_roles / few.num_roles)
        found.append(
            {
                name: math.log(total / few.totals[name]) / growth
                for name, total in many.totals.items()
                if total > 0 and few.totals[name] > 0
            }
        )
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, write JSON; return the exit status."""
    given = _parser().parse_args(arguments)
    torch.set_num_threads(1)
    result = new_result("What does a role cost in the control plane, by the number of roles?")
    measure(2, 1, 1)  # what is imported and allocated once counts for no cluster
    gc.collect()
    gc.freeze()  # as in the process from which roles are forked
    points = []
    for num_csx in sorted(given.systems):
        context = multiprocessing.get_context("fork")
        with ProcessPoolExecutor(1, context) as process:  # memory of another size is no help
            asked = process.submit(
                measure, num_csx, given.servers, given.workers, is_protected=given.protected
            )
            points.append(asked.result())
        _print(points[-1])
    growth = exponents(points)
    _print_growth(points, growth)
    if given.json is not None:
        options = {name: value for name, value in vars(given).items() if name != "json"}
        rows = [asdict(point) for point in points]
        write_json(given.json, {**result, "options": options, "points": rows, "growth": growth})
    return 0


def _print(point: Point) -> None:
    roles = point.num_roles
    start_s = sum(point.start_s.values())
    print(
        f"{point.num_csx} systems, {roles} roles: {sum(point.messages.values()) / roles:.2f} "
        f"messages of {point.payload_bytes / roles / 1024:.2f} KiB, "
        f"{1e3 * point.step_s / roles:.2f} ms a step and role; "
        f"{point.resident_bytes / roles / MIB:.3f} MiB, {point.threads} threads and "
        f"{point.descriptors} descriptors more; start {start_s:.2f} s of processor time; "
        f"busiest {point.busiest}: {point.most_messages} messages",
        flush=True,
    )


def _print_growth(points: Sequence[Point], growth: Sequence[Mapping[str, float]]) -> None:
    for (few, many), powers in zip(pairwise(points), growth, strict=True):
        print(f"from {few.num_roles} to {many.num_roles} roles:")
        for name, power in powers.items():
            total = many.totals[name]
            is_fast = power > _SUPERLINEAR and total > _LEAST_S
            mark = "  faster than linear" if is_fast else ""
            print(f"    {name:30} {total:16,.2f} {power:6.2f}{mark}")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0], allow_abbrev=False)
    sizes = [64, 128, 512, 2048]
    parser.add_argument(
        "--systems", type=positive, nargs="+", default=sizes, help=f"default: {sizes}"
    )
    parser.add_argument("--servers", type=positive, default=2, help="weight servers (default: 2)")
    parser.add_argument("--workers", type=positive, default=1, help="input workers (default: 1)")
    parser.add_argument("--protected", action="store_true", help="with steps as transactions")
    parser.add_argument("--json", type=new_file, help="file for the result")
    return parser


if __name__ == "__main__":
    sys.exit(main())
