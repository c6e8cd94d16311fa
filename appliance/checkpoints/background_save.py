"""A checkpoint that the weight servers write while training goes on."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from waferstream.checkpoint.parts import Part, has_parts, read_parts, remove_parts
from waferstream.checkpoint.writer import write_metadata, writing
from waferstream.core.errors import CheckpointError
from waferstream.core.roles.activities import Interval
from waferstream.host.files import final_path

_POLL_S = 0.02  # between two looks at the files of the weight servers


class BackgroundSave:
    """A file that ``Cluster.begin_save`` has begun, until it is complete.

    Args:
        path: The file.
        servers: The weight servers that write it.
        objects: States that are not tensors, of JSON types.
    """

    def __init__(self, path: Path, servers: Sequence[str], objects: Mapping[str, Any]) -> None:
        self._path = path
        self._servers = servers
        self._objects = objects
        self._is_abandoned = threading.Event()
        self.written: dict[str, Interval] = {}
        """When each server wrote, on the clock of this process; empty until all have."""

    def wait_for_servers(self, timeout_s: float) -> bool:
        """Wait until every server has reported; return whether all have."""
        deadline_s = time.monotonic() + timeout_s
        while not has_parts(self._path, self._servers) and time.monotonic() < deadline_s:
            time.sleep(_POLL_S)
        return has_parts(self._path, self._servers)

    def abandon(self) -> None:
        """Let ``complete`` wait no longer for servers that have not reported."""
        self._is_abandoned.set()

    def complete(self) -> None:
        """Wait for the servers, and complete the file; for a thread beside the training.

        Raises:
            CheckpointError: The file cannot be written, or a server ended before.
        """
        try:
            while not has_parts(self._path, self._servers):
                # It may be abandoned just because all have reported in the meantime.
                if self._is_abandoned.wait(_POLL_S) and not has_parts(self._path, self._servers):
                    raise CheckpointError(
                        "the cluster ended before a checkpoint was written",
                        code="checkpoint-abandoned",
                        where=str(final_path(self._path)),
                        remedy="the same command continues from the checkpoint before",
                    )
            with writing(self._path):
                parts = read_parts(self._path, self._servers)
            self.written = dict(zip(self._servers, map(_interval, parts), strict=True))
            write_metadata(self._path, self._objects, parts)
        finally:
            remove_parts(self._path, self._servers)


def _interval(part: Part) -> Interval:
    """Return when a server wrote its part, on the clock of this process."""
    zero_ns = time.time_ns() - time.perf_counter_ns()
    began_ns, ended_ns = part.began_ns - zero_ns, part.ended_ns - zero_ns
    return Interval("save", began_ns, ended_ns, num_bytes=part.num_bytes)
