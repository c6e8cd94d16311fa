"""What the jobs of this user's own runs log on this host."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from waferstream.management.model.job import Job

JOB_LOG = "job.log"
"""The log of a job, in its folder."""

_MOST_BYTES = 1 << 20  # of one piece


class Logs:
    """The logs of jobs as one stream."""

    def __init__(self) -> None:
        self._read_bytes: dict[Path, int] = {}

    def read(self, jobs: Iterable[Job]) -> Iterator[bytes]:
        """Yield what is new in pieces."""
        paths = [Path(job.log_path) / JOB_LOG for job in jobs if job.log_path]
        for path in paths:
            with suppress(FileNotFoundError), open(path, "rb") as file:
                file.seek(self._read_bytes.get(path, 0))
                while content := file.read(_MOST_BYTES):
                    self._read_bytes[path] = file.tell()
                    yield content
