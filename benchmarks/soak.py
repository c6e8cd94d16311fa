"""Train small steps for a long time, with restarts: does any process grow?

    python -m benchmarks.soak --minutes 60 --json benchmarks/results/soak.json

Every process below run.py is sampled: resident memory, descriptors and threads. A role is killed
every so many steps and replaced, so roles have several processes; the one that lived longest
counts.
"""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from benchmarks.chaos.leftovers import Census, descendants, title_of
from benchmarks.chaos.workload import ROLES, Workload
from waferstream.core.errors import WaferStreamError
from waferstream.core.events import TrainProgress
from waferstream.core.roles.names import COORDINATOR
from waferstream.core.units import aligned
from waferstream.host.files import write_json
from waferstream.host.interrupts import ended_within
from waferstream.reports.benchmark import new_file, new_result, positive

_QUESTION = "Do memory, descriptors and threads of each process stay flat over a long training?"
_ROOT = Path(__file__).resolve().parents[1]
_FOREVER = 10_000_000
_END_S = 60.0
_FEWEST_SAMPLES = 4
_OF_RAY = ("gcs_server", "raylet", "run.py")
_TITLES = {
    "HostedCoordinator": COORDINATOR,
    "SpareCoordinator": f"spare {COORDINATOR}",
    "spare": "spare role",
}
"""Names of processes that are no roles by Ray's title; a spare keeps its title as a role."""


class Sample(NamedTuple):
    """What one process holds at a time."""

    at_s: float
    memory_kib: int
    descriptors: int
    threads: int


@dataclass
class Soak:
    """Samples by name and id of a process."""

    samples: dict[tuple[str, int], list[Sample]] = field(default_factory=dict)

    def look(self, pid: int) -> None:
        """Take a sample of every process of the run."""
        now_s = time.monotonic()
        for below in (pid, *descendants(pid)):
            name = name_of(title_of(below))
            if name is not None and (sample := sample_of(below, now_s)) is not None:
                self.samples.setdefault((name, below), []).append(sample)

    def growth(self) -> Iterator[tuple[str, dict[str, float]]]:
        """Yield the growth of each role's longest process after the first quarter of its life."""
        longest: dict[str, list[Sample]] = {}
        for (name, _), samples in self.samples.items():
            if len(samples) > len(longest.get(name, ())):
                longest[name] = samples
        for name, samples in sorted(longest.items()):
            if len(samples) >= _FEWEST_SAMPLES:
                yield name, gain(samples)


def gain(samples: Sequence[Sample]) -> dict[str, float]:
    """Return the difference of the medians of a process' second and last quarter."""
    quarter = len(samples) // 4
    early, late = samples[quarter : 2 * quarter], samples[-quarter:]
    gains: dict[str, float] = {
        kind: median(getattr(s, kind) for s in late) - median(getattr(s, kind) for s in early)
        for kind in ("memory_kib", "descriptors", "threads")
    }
    return gains | {"seconds": samples[-1].at_s - samples[0].at_s}


def name_of(title: str) -> str | None:
    """Return the role or the process of Ray that a command line belongs to, None for others."""
    if title.startswith("ray::"):
        role = title.removeprefix("ray::").partition(".")[0].partition(" ")[0]
        return _TITLES.get(role, role if role in ROLES else None)
    program = title.split(" ")[:2]
    return next((name for name in _OF_RAY if any(word.endswith(name) for word in program)), None)


def sample_of(pid: int, now_s: float) -> Sample | None:
    """Return a sample of a process, None if it has ended."""
    folder = Path(f"/proc/{pid}")
    try:
        lines = (folder / "status").read_text().splitlines()
        status = dict(line.split(":", 1) for line in lines)
        memory_kib = int(status["VmRSS"].split()[0])
        num_descriptors = len(list((folder / "fd").iterdir()))
    except (OSError, KeyError):
        return None
    return Sample(now_s, memory_kib, num_descriptors, int(status["Threads"]))


def soak(minutes: float, steps_per_fault: int, folder: Path, period_s: float) -> dict[str, Any]:
    """Train for some minutes; return what each process has gained."""
    faults = {
        "stated": [
            f"{role}@{step}:kill"
            for step, role in zip(
                range(steps_per_fault, _FOREVER, steps_per_fault), _killed(minutes), strict=False
            )
        ],
        "folder": str(folder / "faults"),
    }
    workload = Workload(_FOREVER, steps_per_checkpoint=500, num_restarts=1000)
    command = [sys.executable, str(_ROOT / "run.py"), *workload.write(folder, "ray", faults)]
    seen, census = Soak(), Census(folder)
    with (
        (folder / "out").open("w+") as out,
        subprocess.Popen(command, stdout=out, cwd=_ROOT) as run,
    ):
        try:
            deadline = time.monotonic() + 60 * minutes
            while time.monotonic() < deadline and run.poll() is None:
                time.sleep(period_s)
                census.note_processes(run.pid)
                seen.look(run.pid)
            run.send_signal(signal.SIGINT)
            run.wait(_END_S)
        finally:
            run.kill()
        out.seek(0)
        steps = [int(found["step"]) for found in map(TrainProgress.PATTERN.search, out) if found]
    return {
        "minutes": minutes,
        "steps": max(steps, default=0),
        "restarts": len(list((folder / "faults").glob("*"))),
        "gains": dict(seen.growth()),
        "left_behind": census.left(),
    }


def _killed(minutes: float) -> Iterator[str]:
    """Yield the roles that are killed, in turn; weight servers and coordinator live on."""
    for _ in range(int(minutes) + 1):
        yield from (role for role in ROLES if role.startswith(("csx", "br", "wrk")))


def main(arguments: Sequence[str] | None = None) -> int:
    """Train, print the gain of each process and all that was left behind, and write JSON.

    The exit status is 1 if no step was done or if something was left.
    """
    parser = argparse.ArgumentParser(prog="python -m benchmarks.soak", description=_QUESTION)
    parser.add_argument("--minutes", type=float, default=60.0, help="how long to train")
    parser.add_argument("--period", type=float, default=5.0, help="seconds between two samples")
    parser.add_argument("--steps_per_fault", type=positive, default=1000, help="steps until a kill")
    parser.add_argument("--json", type=new_file, help="where the figures go")
    options = parser.parse_args(arguments)
    result = new_result(_QUESTION)
    try:
        with ended_within(_END_S), TemporaryDirectory(prefix="waferstream-soak-") as folder:
            figures = soak(options.minutes, options.steps_per_fault, Path(folder), options.period)
    except WaferStreamError as error:
        print(error, file=sys.stderr)
        return 1
    rows = [("process", "seconds", "memory KiB", "descriptors", "threads")]
    for name, g in figures["gains"].items():
        cells = (g[kind] for kind in ("seconds", "memory_kib", "descriptors", "threads"))
        rows.append((name, *(f"{cell:+.0f}" for cell in cells)))
    print("\n".join(aligned(rows)))
    print(f"steps: {figures['steps']}, restarts: {figures['restarts']}")
    for kind, names in figures["left_behind"].items():
        print(f"left behind: {kind}: {', '.join(names)}")
    if options.json:
        write_json(options.json, result | figures)
    return 0 if figures["steps"] and not figures["left_behind"] else 1


if __name__ == "__main__":
    sys.exit(main())
