"""Traces of jobs: the Standard Workload Format (SWF) and CSV, plain or compressed.

SWF: cs.huji.ac.il/labs/parallel/workload/swf.html; of its columns, 2 is the submission, 4 the run
time, 5 the processors, and 12 the user. A CSV has the columns of the Philly trace: timestamp,
duration, num_gpus, cluster.
"""

from __future__ import annotations

import csv
import gzip
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import islice
from math import isfinite
from pathlib import Path
from typing import IO, cast

from waferstream.core.errors import DataError

MOST_JOBS = 1_000_000
MOST_SYSTEMS = 1 << 20
MOST_BYTES = 1 << 30
"""Of a trace, unpacked."""

_LONGEST_LINE = 4096
_LONGEST_NAME = 64
_DAMAGED = (OSError, EOFError, zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError)
"""What libraries raise for an archive that is damaged, encrypted, or packed in an unknown way."""


@dataclass(frozen=True, slots=True)
class TraceJob:
    """A job of a trace."""

    submitted_s: float
    run_s: float
    """On ``systems``."""
    systems: int
    user: str


def read_trace(path: Path, most_jobs: int = MOST_JOBS) -> list[TraceJob]:
    """Return the first jobs of a trace by submission, which begins at 0.

    Jobs that never ran, with no run time or no systems, are left out.

    Raises:
        DataError: The file is no trace of a known format, is damaged, or beyond the limits.
    """
    parse = _PARSERS.get(Path(path.name.lower().removesuffix(".gz").removesuffix(".zip")).suffix)
    if parse is None:
        raise _error(path, path.name, "trace-format", ".swf or .csv, also with .gz or .zip behind")
    try:
        with _opened(path) as data:
            found = list(islice(parse(path, _lines(path, data)), MOST_JOBS + 1))
    except (*_DAMAGED, UnicodeDecodeError, csv.Error) as error:
        raise _error(path, error, "trace-not-readable", "an undamaged file of text") from error
    if not 0 < len(found) <= MOST_JOBS:
        raise _error(path, f"{len(found):,} jobs", "trace-size", f"1 to {MOST_JOBS:,} jobs")
    jobs = sorted(found, key=lambda job: job.submitted_s)[:most_jobs]
    return [replace(job, submitted_s=job.submitted_s - jobs[0].submitted_s) for job in jobs]


@contextmanager
def _opened(path: Path) -> Iterator[IO[bytes]]:
    """Open the bytes of a trace, unpacked."""
    match path.suffix.lower():
        case ".gz":
            with gzip.open(path) as data:
                yield cast("IO[bytes]", data)
        case ".zip":
            with zipfile.ZipFile(path) as archive:
                if len(archive.namelist()) != 1:
                    value = f"{len(archive.namelist())} files"
                    raise _error(path, value, "trace-archive", "a single file in the archive")
                with archive.open(archive.namelist()[0]) as data:
                    yield data
        case _:
            with path.open("rb") as data:
                yield data


def _lines(path: Path, data: IO[bytes]) -> Iterator[str]:
    """Yield the lines of a trace within the limits of their length and sum."""
    size = 0
    while line := data.readline(_LONGEST_LINE + 1):
        size += len(line)
        if len(line) > _LONGEST_LINE or size > MOST_BYTES:
            rule = f"{MOST_BYTES:,} bytes, lines of {_LONGEST_LINE:,}"
            raise _error(path, f"{size:,} bytes, a line of {len(line):,}", "trace-size", rule)
        yield line.decode()


def _swf(path: Path, lines: Iterable[str]) -> Iterator[TraceJob]:
    for number, line in enumerate(lines, 1):
        fields = line.split()
        if not fields or fields[0].startswith(";"):
            continue
        if len(fields) < 12:
            value = f"line {number}: {len(fields)} columns"
            raise _error(path, value, "trace-line", "at least 12 columns")
        yield from _job(path, number, float, fields[1], fields[3], fields[4], fields[11])


def _csv(path: Path, lines: Iterable[str]) -> Iterator[TraceJob]:
    for number, row in enumerate(csv.DictReader(lines), 2):
        missing = [name for name in ("timestamp", "duration", "num_gpus") if row.get(name) is None]
        if missing:
            raise _error(path, f"line {number}: no {missing[0]}", "trace-line", "a value in it")
        user = row.get("cluster") or ""
        yield from _job(
            path, number, _seconds_of_date, row["timestamp"], row["duration"], row["num_gpus"], user
        )


def _seconds_of_date(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


def _job(
    path: Path,
    number: int,
    time: Callable[[str], float],
    submitted: str,
    run: str,
    systems: str,
    user: str,
) -> Iterator[TraceJob]:
    """Yield the job of a line, unless it never ran."""
    try:
        job = TraceJob(time(submitted), float(run), int(float(systems)), user[:_LONGEST_NAME])
    except (ValueError, OverflowError) as error:
        raise _error(path, f"line {number}: {error}", "trace-line", "times and counts") from error
    if not (isfinite(job.submitted_s) and isfinite(job.run_s) and job.systems <= MOST_SYSTEMS):
        rule = f"finite times, at most {MOST_SYSTEMS:,} systems"
        raise _error(path, f"line {number}: {job}", "trace-line", rule)
    if job.run_s > 0 and job.systems > 0:
        yield job


_PARSERS: Mapping[str, Callable[[Path, Iterable[str]], Iterator[TraceJob]]] = {
    ".swf": _swf,
    ".csv": _csv,
}


def _error(path: Path, value: object, code: str, rule: str) -> DataError:
    return DataError(
        "a trace of jobs must be readable",
        code=code,
        where=str(path),
        value=value,
        rule=rule,
        remedy="name an SWF of the Parallel Workloads Archive, or a CSV with timestamp, duration, "
        "num_gpus and cluster",
    )
