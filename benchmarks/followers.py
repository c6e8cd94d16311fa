"""Measure how soon events reach those who follow workflows, and what the management holds.

    python -m benchmarks.followers --json benchmarks/results/followers.json

A management with its store and its doors runs in a process of its own. Clients follow its
workflows over gRPC, each by a thread here; the runs of the workflows report progress and print. An
hour of it is 7,200 events (20 workflows, one in 10 s each), which come as fast as ``--rate`` says.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import IO, Any

from benchmarks.soak import Sample, gain, sample_of
from waferstream.core.secrets import digest_of, new_secret
from waferstream.host.files import write_json
from waferstream.management.client.remote import RemoteClient
from waferstream.management.door.authentication import Authentication
from waferstream.management.door.doors import Doors, DoorSettings
from waferstream.management.launch.process import ProcessLauncher
from waferstream.management.manager.administration import TOKEN_PREFIX
from waferstream.management.manager.folders import Folders
from waferstream.management.manager.launches import Launches
from waferstream.management.manager.manager import Manager
from waferstream.management.model.event import Event, Progressed
from waferstream.management.model.inventory import QueueSpec
from waferstream.management.model.operations import Caller, Cancel, NoteFact, Submit
from waferstream.management.model.workflow import Progress, Submission
from waferstream.management.store.opening import open_store
from waferstream.reports.benchmark import new_file, new_result, positive

_HOME = Path(__file__).parents[1]
_WORKFLOWS = 20
_LINE = b"| Train Device=CSX, Step=50, Loss=7.67126, Rate=31.97 samples/sec\n"
_START_S, _END_S = 60.0, 60.0
_ANN = Caller(user="ann")
_SAMPLE_S = 1.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, write JSON; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0], allow_abbrev=False)
    parser.add_argument("--followers", type=positive, default=200, help="clients that follow")
    parser.add_argument("--events", type=positive, default=7200, help="progress events in all")
    parser.add_argument("--rate", type=positive, default=20, help="events a second")
    parser.add_argument("--json", type=new_file, help="file for the result")
    parser.add_argument("--serve", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.serve is not None:
        _serve(options.serve, options.events, options.rate)
        return 0
    result = new_result("seconds from an event to its followers; memory of the management")
    found = _measure(options.followers, options.events, options.rate)
    print(json.dumps(found, indent=2))
    if options.json is not None:
        write_json(options.json, result | {"followers": options.followers} | found)
    return 0


def _measure(followers: int, events: int, rate: int) -> dict[str, Any]:
    """Follow workflows of a management; return what was seen."""
    with TemporaryDirectory(prefix="benchmark-") as folder, _served(folder, events, rate) as served:
        process, about = served
        waits: list[float] = []
        samples: list[Sample] = []
        ended = threading.Event()
        with (
            closing(RemoteClient(about["address"], about["token"])) as client,
            ThreadPoolExecutor(followers + 1) as threads,
        ):
            sampling = threads.submit(_sample, process.pid, samples, ended)
            names = [about["workflows"][index % _WORKFLOWS] for index in range(followers)]
            found = [threads.submit(_follow, client, name) for name in names]
            time.sleep(2.0)  # all are there
            assert process.stdin is not None, "it is a pipe"
            process.stdin.write("go\n")
            process.stdin.flush()
            log_bytes = 0
            for each in found:
                seen, printed = each.result()
                waits += seen
                log_bytes += printed
            ended.set()
            sampling.result()
    waits.sort()
    return {
        "events_received": len(waits),
        "events_due": events * followers // _WORKFLOWS,
        "log_bytes_received": log_bytes,
        "event_to_follower_s": {
            "median": median(waits), "p99": waits[len(waits) * 99 // 100], "most": waits[-1],
        },
        "first_memory_mib": samples[0].memory_kib / 1024,
        "last_memory_mib": samples[-1].memory_kib / 1024,
        "growth": gain(samples),
    }  # fmt: skip


def _follow(client: RemoteClient, name: str) -> tuple[list[float], int]:
    """Follow a workflow to its end; return how late each event came, and the size of the log."""
    waits, log_bytes = [], 0
    for part in client.follow(name):
        if isinstance(part, bytes):
            log_bytes += len(part)
        elif isinstance(part, Event) and isinstance(part.fact, Progressed):
            waits.append(time.time() - part.time_s)
    return waits, log_bytes


def _sample(pid: int, samples: list[Sample], ended: threading.Event) -> None:
    """Look at a process until that is enough."""
    while not ended.wait(_SAMPLE_S):
        if (sample := sample_of(pid, time.monotonic())) is not None:
            samples.append(sample)


@contextmanager
def _served(
    folder: str, events: int, rate: int
) -> Iterator[tuple[subprocess.Popen[str], dict[str, Any]]]:
    """Start the management; yield its process, and what it says of itself."""
    words = ["--serve", folder, "--events", str(events), "--rate", str(rate)]
    command = [sys.executable, "-m", "benchmarks.followers", *words]
    with subprocess.Popen(
        command, cwd=_HOME, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        try:
            assert process.stdout is not None, "it is a pipe"
            yield process, json.loads(process.stdout.readline())
        finally:
            process.terminate()
            process.wait(_END_S)


def _serve(folder: Path, events: int, rate: int) -> None:
    """Run a management, and let its workflows report when a line comes."""
    store = open_store(folder / "store.sqlite")
    folders = Folders(folder)
    manager = Manager(store, Launches(ProcessLauncher(folder / "launches"), folders))
    token = new_secret(TOKEN_PREFIX)
    with store.change() as changes:
        changes.put_inventory(QueueSpec(systems=192, memoryx_groups=16).inventory())
        changes.put_user(_ANN)
        changes.add_token(digest_of(token), _ANN.user, time.time())
    submission = Submission(words=("fit", "params.yaml"), num_csx=4)
    names = [manager.do(_ANN, Submit(submission=submission)).name for _ in range(_WORKFLOWS)]
    logs = {name: folders.log(name) for name in names}
    for path in logs.values():
        path.parent.mkdir(parents=True, exist_ok=True)
    authentication = Authentication(store.reading, lambda _: None)
    with closing(store), Doors(manager, authentication, DoorSettings()) as doors:
        about = {"address": doors.address, "token": token, "workflows": names}
        print(json.dumps(about), flush=True)
        sys.stdin.readline()
        with ExitStack() as stack:
            files = {
                name: stack.enter_context(path.open("ab", buffering=0))
                for name, path in logs.items()
            }
            _report(manager, files, events, rate)
        sys.stdin.read()


def _report(manager: Manager, logs: Mapping[str, IO[bytes]], events: int, rate: int) -> None:
    """Let workflows report progress at random, and end."""
    draw, begin_s = random.Random(0), time.monotonic()
    for number in range(events):
        time.sleep(max(0.0, begin_s + number / rate - time.monotonic()))
        name = draw.choice(list(logs))
        logs[name].write(_LINE)
        progress = Progress(step=number, total_steps=events, loss=1.0)
        _note(manager, name, Progressed(progress=progress))
    for name in logs:
        manager.do(_ANN, Cancel(name=name))


def _note(manager: Manager, name: str, fact: Progressed) -> None:
    run = Caller(user=name, role="run", workflow=name)
    manager.do(run, NoteFact(name=name, fact=fact))


if __name__ == "__main__":
    sys.exit(main())
