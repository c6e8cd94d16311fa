"""Measure how fast a store of the management is read and written, beside what it cannot avoid.

    python -m benchmarks.stores --json benchmarks/results/stores.json

A store in a file of SQLite has ``--workflows`` that wait, each with two jobs. Arms of reading: all
of them by a process that has not read them before (``first``), and by one that has (``again``); the
floor is parsing the same JSON by the standard library. Arm of writing: an event in a change of its
own (``note``); the floor is a row of the same bytes in a transaction of its own, by ``sqlite3``.
Seconds are those of the processor, and arms take turns, so that other programs disturb little.
"""

from __future__ import annotations

import argparse
import json
import sqlite3
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from waferstream.host.files import write_json
from waferstream.management.model.event import JobCreated, Progressed, Submitted
from waferstream.management.model.workflow import Progress, Submission
from waferstream.management.store.opening import open_store
from waferstream.management.store.store import Store
from waferstream.reports.benchmark import new_file, new_result, positive

_NOTES = 100
"""Events of a round."""


def fill(store: Store, workflows: int) -> None:
    """Submit workflows with two jobs each."""
    submission = Submission(
        words=("--params", "params.yaml"), num_csx=2, min_num_csx=1, labels={"team": "vision"}
    )
    with store.change() as changes:
        for index in range(workflows):
            name = f"wflow-{index:022}"
            changes.note(name, Submitted(user="alice", submission=submission), float(index))
            for kind in ("compile", "execute"):
                job = JobCreated(job=f"wsjob-{kind}-{index}", of=kind)
                changes.note(name, job, float(index))


def read(path: Path) -> dict[str, float]:
    """Return the seconds of reading all that waits, by arm."""
    store = open_store(path)

    def read_all() -> None:
        with store.reading() as views:
            views.workflows()

    seconds = {"first": seconds_of(read_all), "again": seconds_of(read_all)}
    with store.reading() as views:
        bodies = [each.model_dump_json() for each in views.workflows()]
    store.close()
    return {**seconds, "floor": seconds_of(lambda: [json.loads(body) for body in bodies])}


def write(path: Path) -> dict[str, float]:
    """Return the seconds of one event, by arm."""
    store = open_store(path)
    name, fact = f"wflow-{0:022}", Progressed(progress=Progress(step=1, total_steps=2))
    with store.reading() as views:
        view = views.workflow(name)
    assert view is not None
    size = len(view.model_dump_json()) + len(fact.model_dump_json())

    def note() -> None:
        for _ in range(_NOTES):
            with store.change() as changes:
                changes.note(name, fact, 1.0)

    seconds = {"note": seconds_of(note) / _NOTES, "floor": _floor(path.with_name("floor"), size)}
    store.close()
    return seconds


def _floor(path: Path, size: int) -> float:
    """Return the seconds of a row of so many bytes."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute("CREATE TABLE IF NOT EXISTS rows (body TEXT)")

        def insert() -> None:
            for _ in range(_NOTES):
                connection.execute("BEGIN IMMEDIATE")
                connection.execute("INSERT INTO rows VALUES (?)", ("x" * size,))
                connection.execute("COMMIT")

        return seconds_of(insert) / _NOTES


def seconds_of(work: Callable[[], object]) -> float:
    """Return the seconds of the processor that some work takes."""
    start_s = time.process_time()
    work()
    return time.process_time() - start_s


def main(argv: Sequence[str] | None = None) -> None:
    """Run the benchmark and write its JSON."""
    given = _parse(argv)
    result = new_result("How fast is a store of the management read and written?")
    with TemporaryDirectory() as folder:
        path = Path(folder) / "store" / "store.sqlite"
        store = open_store(path)
        fill(store, given.workflows)
        store.close()
        rounds = [{"read": read(path), "write": write(path)} for _ in range(given.rounds)]
    medians = {
        work: {arm: median(each[work][arm] for each in rounds) for arm in rounds[0][work]}
        for work in rounds[0]
    }
    for work, arms in medians.items():
        for arm, seconds in arms.items():
            print(f"{work} {arm}: {1e3 * seconds:.2f} ms, {seconds / arms['floor']:.1f} floors")
    if given.json:
        options = {name: value for name, value in vars(given).items() if name != "json"}
        write_json(given.json, {**result, "options": options, "rounds": rounds, "s": medians})


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", type=new_file, help="file for the result")
    parser.add_argument("--workflows", type=positive, default=1000, help="default: 1000")
    parser.add_argument("--rounds", type=positive, default=9, help="rounds of all arms")
    return parser.parse_args(argv)


if __name__ == "__main__":
    main()
