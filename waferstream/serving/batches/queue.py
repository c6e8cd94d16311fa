"""The batches of a service: one after the other, kept in a folder, continued after a restart."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from pydantic import ValidationError

from waferstream.core.errors import ApplianceResourceExhausted, WaferStreamError
from waferstream.host.files import write_json
from waferstream.serving.batches.batch import Batch, RequestCounts
from waferstream.serving.batches.files import FileStore
from waferstream.serving.batches.lines import Fault, checked
from waferstream.serving.batches.running import Ask, BatchRun

MOST_WAITING = 100
"""The most batches that have not ended."""

log = logging.getLogger("waferstream")


class BatchQueue:
    """The batches of a service; all calls come from its loop.

    Args:
        folder: Where they are kept, a file each.
        files: Their requests and answers.
        ask: Answers a request.
    """

    def __init__(self, folder: Path, files: FileStore, ask: Ask) -> None:
        self._folder = folder
        self._files = files
        self._ask = ask
        self._batches = _kept(folder)
        self._runs: dict[str, BatchRun] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._turn = asyncio.Lock()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Answer what has not ended, until the block ends; the rest waits for a restart."""
        for batch in self.all():
            if not batch.has_ended:
                self._begin(batch)
        try:
            yield
        finally:
            tasks = list(self._tasks.values())
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def all(self) -> list[Batch]:
        """Return all batches, the oldest first."""
        found = (self.get(name) for name in self._batches)
        return sorted(filter(None, found), key=lambda batch: (batch.created_at, batch.id))

    def get(self, name: str) -> Batch | None:
        """Return a batch with what was done of it, None if there is none."""
        batch, run = self._batches.get(name), self._runs.get(name)
        return batch if batch is None or run is None else batch.counting(run.progress)

    def add(self, batch: Batch) -> None:
        """Let a batch wait for its turn.

        Raises:
            ApplianceResourceExhausted: Too many wait.
            OSError: It cannot be kept.
        """
        if len(self._tasks) >= MOST_WAITING:
            raise ApplianceResourceExhausted(
                "batches must wait for those before them",
                code="too-many-batches",
                value=len(self._tasks),
                rule=f"at most {MOST_WAITING} that have not ended",
                remedy="wait for one of them, or cancel it",
            )
        self._write(batch)
        self._batches[batch.id] = batch
        self._begin(batch)

    def cancel(self, name: str) -> None:
        """Let no further request of a batch be asked."""
        self._change(self._batches[name].now("cancelling"))
        self._tasks[name].cancel()

    def uses(self, file: str) -> bool:
        """Return whether a batch that has not ended reads a file."""
        return any(
            each.input_file_id == file and not each.has_ended for each in self._batches.values()
        )

    def _begin(self, batch: Batch) -> None:
        task = asyncio.create_task(self._live(batch.id))
        self._tasks[batch.id] = task
        task.add_done_callback(lambda _: self._tasks.pop(batch.id, None))

    async def _live(self, name: str) -> None:
        """Do what is to be done of a batch, and keep what has become of it."""
        try:
            ended = await self._outcome(self._batches[name])
        except (OSError, WaferStreamError) as error:
            log.warning("%s has failed: %s", name, error)
            code = error.code if isinstance(error, WaferStreamError) else "storage_failed"
            ended = self._batches[name].now("failed", [Fault(code, str(error))])
        except Exception:
            log.exception("%s has failed", name)
            fault = Fault("internal_error", "the service has failed here")
            ended = self._batches[name].now("failed", [fault])
        self._end(ended)

    async def _outcome(self, batch: Batch) -> Batch:
        """Answer the requests of a batch; return it with how it ends."""
        try:
            if batch.status == "cancelling":  # when the service ended
                return batch.now("cancelled")
            await self._answer(batch)
        except asyncio.CancelledError:
            if self._batches[batch.id].status != "cancelling":
                raise  # the service ends
            return self._batches[batch.id].now("cancelled")
        except InvalidBatch as error:
            return batch.now("failed", error.faults)
        except TimeoutError:
            self._run_of(batch).give_up("batch_expired", "the batch took too long")
            return self._batches[batch.id].now("expired")
        return self._batches[batch.id].now("completed")

    async def _answer(self, batch: Batch) -> None:
        """Check a batch, wait for its turn, and answer its requests."""
        source = self._files.content(batch.input_file_id)
        total, faults = await asyncio.to_thread(checked, source, frozenset({batch.endpoint}))
        if faults:
            raise InvalidBatch(faults)
        async with asyncio.timeout(batch.expires_at - time.time()), self._turn:
            began = batch.now("in_progress") if batch.in_progress_at is None else batch
            counts = RequestCounts(total=total)
            self._change(began.model_copy(update={"request_counts": counts}))
            await self._run_of(batch).run()

    def _run_of(self, batch: Batch) -> BatchRun:
        """Return what answers the requests of a batch."""
        if batch.id not in self._runs:
            content = self._files.content
            self._runs[batch.id] = BatchRun(
                content(batch.input_file_id),
                content(batch.results),
                content(batch.refusals),
                self._ask,
            )
        return self._runs[batch.id]

    def _end(self, batch: Batch) -> None:
        """Publish what was answered of a batch that ends."""
        if batch.id in self._runs or batch.in_progress_at is not None:
            run = self._run_of(batch)
            try:
                run.recover()
                batch = self._with_files(batch.counting(run.progress))
            except (OSError, WaferStreamError) as error:
                log.warning("answers of %s cannot be read: %s", batch.id, error)
        self._runs.pop(batch.id, None)
        self._change(batch)

    def _with_files(self, batch: Batch) -> Batch:
        """Return a batch with the names of its files that are not empty."""
        names: dict[str, str] = {}
        for key, name in (("output_file_id", batch.results), ("error_file_id", batch.refusals)):
            if not self._files.content(name).stat().st_size:
                self._files.content(name).unlink()
                continue
            names[key] = name
            try:
                self._files.keep(name, f"{name}.jsonl", "batch_output")
            except OSError as error:
                log.warning("%s is there until the service ends: %s", name, error)
        return batch.model_copy(update=names)

    def _change(self, batch: Batch) -> None:
        """Keep what has become of a batch; in memory alone if the disk takes no more."""
        self._batches[batch.id] = batch
        try:
            self._write(batch)
        except OSError as error:
            log.warning("%s cannot be kept: %s", batch.id, error)

    def _write(self, batch: Batch) -> None:
        write_json(self._folder / f"{batch.id}.json", batch.model_dump())


class InvalidBatch(Exception):
    """A file that is no batch."""

    def __init__(self, faults: list[Fault]) -> None:
        super().__init__(faults)
        self.faults = faults


def _kept(folder: Path) -> dict[str, Batch]:
    """Return the batches that a service has left."""
    found: dict[str, Batch] = {}
    for path in folder.glob("batch_*.json"):
        try:
            batch = Batch.model_validate_json(path.read_bytes())
        except (OSError, ValidationError) as error:
            log.warning("%s says nothing of a batch: %s", path, error)
            continue
        found[batch.id] = batch
    return found
