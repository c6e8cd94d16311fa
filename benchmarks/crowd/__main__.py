"""Measure a management with a full queue and many followers.

    python -m benchmarks.crowd --json benchmarks/results/crowd.json

``--queued`` jobs wait for ``--systems`` systems, and jobs that take no processor run for an hour of
a clock that is 60 times as fast. Meanwhile ``--followers`` follow one job each over gRPC, and a
client lists all jobs again and again. Reported are the age of events as they arrive, the time of a
list from the call to its workflows, that of a turn of the management, and the memory of its process
after a quarter of the time and at the end.
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from waferstream.core.errors import WaferStreamError
from waferstream.core.units import KIB, MIB
from waferstream.host.files import write_json
from waferstream.management.client.remote import RemoteClient
from waferstream.management.model.event import Event, Progressed
from waferstream.management.model.operations import ListWorkflows
from waferstream.management.model.workflow import Stage
from waferstream.reports.benchmark import new_file, new_result, positive

_EMULATED_S = 3600.0
_LIST_EVERY_S = 1.0


class Crowd:
    """Followers of a management, each of one job after the other."""

    def __init__(self, address: str, token: str, followers: int) -> None:
        self._client = RemoteClient(address, token)
        self._ended = threading.Event()
        self._threads = [
            threading.Thread(target=self._follow, args=(number,), daemon=True)
            for number in range(followers)
        ]
        self.ages_s: list[float] = []
        self.events = 0

    def start(self) -> None:
        """Let all begin."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Let all end."""
        self._ended.set()
        self._client.close()
        for thread in self._threads:
            thread.join(10.0)

    def _follow(self, number: int) -> None:
        while not self._ended.is_set():
            try:
                workflows = self._client.do(ListWorkflows(limit=len(self._threads)))
                workflows.sort(key=lambda each: each.stage is not Stage.RUNNING)
                name = workflows[number % len(workflows)].name
                began_s = time.time()
                for each in self._client.follow(name):
                    self._note(each, began_s)
            except (WaferStreamError, ValueError):  # the connection was closed
                self._ended.wait(1.0)

    def _note(self, part: Event | bytes, began_s: float) -> None:
        """Count an event, and note its age unless it was there before."""
        if not isinstance(part, Event):
            return
        self.events += 1
        if isinstance(part.fact, Progressed) and (part.fact.progress.loss or 0.0) > began_s:
            self.ages_s.append(time.time() - (part.fact.progress.loss or 0.0))


def measure(given: argparse.Namespace) -> dict[str, Any]:
    """Run a management and its crowd; return what they saw."""
    with tempfile.TemporaryDirectory() as folder:
        numbers = (given.systems, given.groups, given.queued, given.faster)
        words = ["-m", "benchmarks.crowd.emulated", folder, *map(str, numbers)]
        with subprocess.Popen(
            [sys.executable, *words], stdout=subprocess.PIPE, text=True
        ) as process:
            try:
                assert process.stdout is not None, "it is a pipe"
                address, token = process.stdout.readline().split()
                seen = _watch(process.pid, Crowd(address, token, given.followers), given)
                seen["list_s"] = percentiles(_lists(RemoteClient(address, token), given.lists))
            finally:
                process.send_signal(signal.SIGTERM)
            turns_s = json.loads(process.stdout.readline())
    return {**seen, "turn_s": percentiles(turns_s)}


def _watch(pid: int, crowd: Crowd, given: argparse.Namespace) -> dict[str, Any]:
    """Let a crowd follow for the emulated time; return ages of events, and memory."""
    crowd.start()
    seconds = _EMULATED_S / given.faster
    time.sleep(seconds / 4)
    before_bytes = memory_bytes(pid)
    time.sleep(3 * seconds / 4)
    after_bytes = memory_bytes(pid)
    found = {
        "event_age_s": percentiles(crowd.ages_s),
        "events": crowd.events,
        "memory_mib": [before_bytes / MIB, after_bytes / MIB],
        "memory_growth_mib": (after_bytes - before_bytes) / MIB,
    }
    crowd.stop()
    return found


def _lists(client: RemoteClient, count: int) -> list[float]:
    """Return the seconds of lists, one at a time."""
    seconds = []
    for _ in range(count):
        start_s = time.perf_counter()
        client.do(ListWorkflows())
        seconds.append(time.perf_counter() - start_s)
        time.sleep(_LIST_EVERY_S / 5)
    client.close()
    return seconds


def percentiles(values: Sequence[float]) -> dict[str, float]:
    """Return the median and the 99th percentile, and how many values there are."""
    p50, p99 = np.percentile(values, [50, 99])
    return {"p50": float(p50), "p99": float(p99), "count": len(values)}


def memory_bytes(pid: int) -> int:
    """Return the resident memory of a process."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    (line,) = (each for each in lines if each.startswith("VmRSS:"))
    return int(line.split()[1]) * KIB


def main(argv: Sequence[str] | None = None) -> None:
    """Run the benchmark and write its JSON."""
    given = _parse(argv)
    result = new_result("How fast does a management answer with a full queue and many followers?")
    found = measure(given)
    print(json.dumps(found, indent=2))
    if given.json:
        options = {name: value for name, value in vars(given).items() if name != "json"}
        write_json(given.json, {**result, "options": options, **found})


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", type=new_file, help="file for the result")
    parser.add_argument("--systems", type=positive, default=192, help="default: 192")
    parser.add_argument("--groups", type=positive, default=16, help="default: 16")
    parser.add_argument("--queued", type=positive, default=1000, help="default: 1000")
    parser.add_argument("--followers", type=positive, default=200, help="default: 200")
    parser.add_argument("--faster", type=positive, default=60, help="the clock (default: 60 times)")
    parser.add_argument("--lists", type=positive, default=50, help="lists of all jobs")
    return parser.parse_args(argv)


if __name__ == "__main__":
    main()
