"""The trace that a command writes when its run has ended."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from waferstream.core.errors import ConfigError, WaferStreamError
from waferstream.machine.record import DEFAULT_LIMIT

if TYPE_CHECKING:
    from cstorch.backend import Backend

log = logging.getLogger("waferstream")


@dataclass(frozen=True)
class TraceRequest:
    """A trace file, and the most activities of each clock in it."""

    path: Path
    limit: int = DEFAULT_LIMIT

    def of_phase(self, number: int) -> TraceRequest:
        """Return the request of one of several runs, each of which writes a file."""
        return replace(self, path=self.path.with_stem(f"{self.path.stem}_{number}"))

    def check(self) -> None:
        """Raise ConfigError for a file that could not be written at the end of the run."""
        folder = self.path.parent
        if self.path.is_dir() or not folder.is_dir() or not os.access(folder, os.W_OK):
            raise ConfigError(
                "the trace must be a file in a folder that exists and is writable",
                code="trace-not-writable",
                where="--trace",
                value=self.path,
                remedy="name a file in a writable folder",
            )
        if self.limit < 1:
            raise ConfigError(
                "a trace must have room for an activity",
                code="trace-limit-too-small",
                where="--trace_limit",
                value=self.limit,
                rule="at least 1",
            )

    def write(self, backend: Backend) -> None:
        """Write what a backend has recorded, and log where it is and what it lacks."""
        missing = backend.write_trace(self.path)
        log.info("Trace of both clocks: %s (open it in ui.perfetto.dev)", self.path)
        for sentence in missing:
            log.warning("Not in the trace: %s", sentence)

    @contextmanager
    def writing(self, backend_of: Callable[[], Backend | None]) -> Iterator[None]:
        """Write the trace at the end of the block, also where the block fails.

        Args:
            backend_of: Returns the backend of the block at its end, None if it made none.
        """
        try:
            yield
        except BaseException:
            self._write_until_failure(backend_of())
            raise
        backend = backend_of()
        if backend is None or backend.running_cluster is None:
            log.warning("No trace is written: no cluster runs at the end of the program")
            return
        self.write(backend)

    def _write_until_failure(self, backend: Backend | None) -> None:
        """Write what was recorded before a failure, whose exception goes on in any case."""
        if backend is None or backend.running_cluster is None:
            log.warning("No trace is written: no cluster ran before the failure")
            return
        try:
            self.write(backend)
        except (WaferStreamError, OSError) as error:
            log.warning("No trace of the failed run: %s", error)
        else:
            log.warning("Not in the trace: what the roles did since the last completed job")
