"""The one thread that reads and writes the store of a running service.

What began and what ended is written together, in one transaction. An answer begins when its row is
written; its end is written until that succeeds.
"""

from __future__ import annotations

import logging
import queue
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass

from waferstream.core.errors import RequestRefused
from waferstream.serving.accounts.keys import Key
from waferstream.serving.accounts.store import AnswerRow, Store

log = logging.getLogger("waferstream")

POLL_S = 0.25
"""How often keys are read again, and what could not be written is tried again."""

RETRY_S = 2.0
"""After which a client may ask again while the store cannot be written."""

CLOSE_S = 5.0
"""How long the end of the service waits for what could not be written."""


@dataclass(frozen=True)
class _Job:
    """A row to insert, or None to catch up; who waits gets an error or nothing."""

    row: AnswerRow | None
    done: Future[None]

    def finish(self, error: Exception | None) -> None:
        """Let who waits go on; one who has left does not hear it."""
        if not self.done.set_running_or_notify_cancel():
            return
        if error is None:
            self.done.set_result(None)
        else:
            self.done.set_exception(error)


class Writer:
    """The thread.

    Args:
        store: The file, which this thread alone uses from now on.
        keys_changed: Gets all keys when another process has changed some.
    """

    def __init__(self, store: Store, keys_changed: Callable[[Sequence[Key]], None]) -> None:
        self._store = store
        self._keys_changed = keys_changed
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._ended: dict[str, AnswerRow | None] = {}
        self._lock = threading.Lock()
        self._ends_by_s: float | None = None
        self._is_writing = True
        self._is_tidy = True
        self._thread = threading.Thread(target=self._run, name="accounts", daemon=True)

    def start(self) -> None:
        """Let the thread begin."""
        self._thread.start()

    def begin(self, row: AnswerRow) -> Future[None]:
        """Write the row of an answer that begins."""
        return self._ask(row)

    def catch_up(self) -> Future[None]:
        """Write what has ended so far, and read the keys if another process has changed them."""
        return self._ask(None)

    def end(self, name: str, row: AnswerRow | None) -> None:
        """Write how an answer has ended; None for one that did not begin."""
        with self._lock:
            self._ended[name] = row
        self._jobs.put(None)

    def close(self) -> None:
        """End once all is written, or ``CLOSE_S`` has passed. Idempotent."""
        self._ends_by_s = time.monotonic() + CLOSE_S
        self._jobs.put(None)
        self._thread.join(2 * CLOSE_S)

    def _ask(self, row: AnswerRow | None) -> Future[None]:
        job = _Job(row, Future())
        self._jobs.put(job)
        return job.done

    def _run(self) -> None:
        while not self._is_over():
            jobs, ended = self._next()
            try:
                self._do(jobs, ended)
                error = None
            except Exception as failure:  # a service that cannot write refuses, and goes on
                error = failure
            self._log(error)
            for job in jobs:
                job.finish(None if error is None else _not_written(error))
        lost = [row for row in self._ended.values() if row is not None]
        if lost:
            log.error("%d answers end without what they used in the accounts", len(lost))

    def _is_over(self) -> bool:
        if self._ends_by_s is None:
            return False
        return not self._ended or time.monotonic() >= self._ends_by_s

    def _next(self) -> tuple[list[_Job], dict[str, AnswerRow | None]]:
        """Return all that is to be done now; wait for it for ``POLL_S`` at most."""
        jobs: list[_Job | None] = []
        try:
            jobs.append(self._jobs.get(timeout=POLL_S))
            with self._lock:  # before the other jobs: an answer is inserted before it ends
                ended = dict(self._ended)
            while True:
                jobs.append(self._jobs.get_nowait())
        except queue.Empty:
            if not jobs:
                with self._lock:
                    ended = dict(self._ended)
        return [job for job in jobs if job is not None], ended

    def _do(self, jobs: Sequence[_Job], ended: dict[str, AnswerRow | None]) -> None:
        """Write what began and ended, then read the keys; a sqlite3.Error leaves all as it was."""
        if (keys := self._store.changed_keys()) is not None:
            self._keys_changed(keys)
        if not (jobs or ended):
            self._tidy()
            return
        self._is_tidy = False
        self._store.write(
            ended=[row for row in ended.values() if row is not None],
            begun=[job.row for job in jobs if job.row is not None],
            void=[name for name, row in ended.items() if row is None],
        )
        with self._lock:
            for name in ended:
                del self._ended[name]

    def _tidy(self) -> None:
        if not self._is_tidy:
            self._store.tidy()
            self._is_tidy = True

    def _log(self, error: Exception | None) -> None:
        """Log that the store cannot be written, and that it can be again, once each."""
        if error is not None and self._is_writing:
            log.error("The accounts cannot be written (%s): requests are refused", error)
        elif error is None and not self._is_writing:
            log.warning("The accounts are written again")
        self._is_writing = error is None


def _not_written(error: Exception) -> RequestRefused:
    is_known = isinstance(error, sqlite3.Error)
    return RequestRefused(
        "the accounts must be written before a request is answered",
        code="accounts-not-written",
        rule=str(error) if is_known else type(error).__name__,
        remedy="repeat the request; if it goes on, look at the disk and at who locks the file",
    ).until(RETRY_S)
