"""What becomes of batches when something goes wrong."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.support.errors import raises
from waferstream.core.errors import ApplianceResourceExhausted, ConfigError
from waferstream.serving.batches import batch as batches
from waferstream.serving.batches import files
from waferstream.serving.batches import queue as queue_module
from waferstream.serving.batches.batch import Batch
from waferstream.serving.batches.files import FileStore
from waferstream.serving.batches.queue import BatchQueue
from waferstream.serving.batches.running import LANES, Ask, BatchRun

WAIT_S = 30


class Service:
    """Answers each request after a turn of the loop, until it is told otherwise."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.status = 200
        self.most_at_once = self._now = 0

    async def ask(self, path: str, body: Mapping[str, Any]) -> tuple[int, Mapping[str, Any]]:
        self.asked.append(body["text"])
        self._now += 1
        self.most_at_once = max(self.most_at_once, self._now)
        await asyncio.sleep(0)
        self._now -= 1
        return self.status, {"usage": {"prompt_tokens": 1, "completion_tokens": 2}}


async def never(path: str, body: Mapping[str, Any]) -> tuple[int, Mapping[str, Any]]:
    await asyncio.Event().wait()
    raise AssertionError


def added(store: FileStore, count: int) -> Batch:
    lines = (
        {"custom_id": f"{i}", "method": "POST", "url": "/x", "body": {"text": f"{i}"}}
        for i in range(count)
    )
    content = "".join(json.dumps(line) + "\n" for line in lines).encode()
    return Batch.new("/x", store.add(io.BytesIO(content), "a").id, None)


def ended(folder: Path, ask: Ask, count: int = 40) -> tuple[Batch, FileStore]:
    """Return a batch once it has ended, and the files of its service."""

    async def wait() -> tuple[Batch, FileStore]:
        store = FileStore(folder)
        queue = BatchQueue(folder, store, ask)
        batch = added(store, count)
        async with asyncio.timeout(WAIT_S), queue.running():
            queue.add(batch)
            await asyncio.gather(*queue._tasks.values())
            found = queue.get(batch.id)
            assert found is not None
            return found, store

    return asyncio.run(wait())


def test_some_requests_run_at_once(tmp_path: Path) -> None:
    service = Service()
    batch, store = ended(tmp_path, service.ask, count=200)
    assert batch.status == "completed"
    assert service.most_at_once == LANES
    assert batch.usage is not None
    assert batch.usage["total_tokens"] == 600
    assert batch.output_file_id is not None
    assert store.content(batch.output_file_id).read_bytes().count(b"\n") == 200


def test_service_that_has_ended_fails_the_batch(tmp_path: Path) -> None:
    """And answers no request with an error of its own."""
    service = Service()
    service.status = 503
    batch, _ = ended(tmp_path, service.ask)
    assert batch.status == "failed"
    assert batch.errors is not None
    assert batch.errors.data[0].code == "batch-not-answered"
    assert batch.error_file_id is None


def test_full_disk_fails_the_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = BatchRun._write

    def keep_none(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    def write_some(run: BatchRun, *args: Any) -> None:
        if run.progress.completed == 3:
            monkeypatch.setattr(files, "write_json", keep_none)
            keep_none()
        write(run, *args)

    monkeypatch.setattr(BatchRun, "_write", write_some)
    batch, store = ended(tmp_path, Service().ask)
    assert batch.status == "failed"
    assert batch.errors is not None
    assert batch.errors.data[0].code == "storage_failed"
    assert batch.output_file_id is not None
    assert store.content(batch.output_file_id).read_bytes().count(b"\n") == 3


def test_batch_that_takes_too_long_tells_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batches, "WINDOW_S", 0)
    batch, store = ended(tmp_path, never)
    assert batch.status == "expired"
    assert batch.error_file_id is not None
    errors = store.content(batch.error_file_id).read_text().splitlines()
    assert {json.loads(each)["error"]["code"] for each in errors} == {"batch_expired"}
    assert len(errors) == batch.request_counts.failed == 40


def test_service_that_ends_leaves_the_rest_for_a_restart(tmp_path: Path) -> None:
    async def begin() -> str:
        store = FileStore(tmp_path)
        queue = BatchQueue(tmp_path, store, never)
        batch = added(store, 3)
        async with queue.running():
            queue.add(batch)
            while batch.id not in queue._runs:
                await asyncio.sleep(0)
        return batch.id

    async def go_on(name: str) -> Batch | None:
        queue = BatchQueue(tmp_path, FileStore(tmp_path), Service().ask)
        async with queue.running():
            await asyncio.gather(*queue._tasks.values())
        return queue.get(name)

    batch = asyncio.run(go_on(asyncio.run(begin())))
    assert batch is not None
    assert (batch.status, batch.request_counts.completed) == ("completed", 3)


def test_batch_that_was_being_cancelled_is_cancelled_after_a_restart(tmp_path: Path) -> None:
    store = FileStore(tmp_path)
    batch = added(store, 3).now("cancelling")
    (tmp_path / f"{batch.id}.json").write_text(batch.model_dump_json())

    async def restart() -> Batch | None:
        queue = BatchQueue(tmp_path, FileStore(tmp_path), never)
        async with queue.running():
            await asyncio.gather(*queue._tasks.values())
        return queue.get(batch.id)

    found = asyncio.run(restart())
    assert found is not None
    assert found.status == "cancelled"


@pytest.mark.parametrize(
    "found",
    [
        b"notes of mine",
        b'{"custom_id": "0", "url": "/x"}\n',
        b'{"id": "batch_req_1", "custom_id": "0", "response": null}\nmore\n',
        b'{"id": "batch_req_1", "custom_id": "other", "response": null, "error": {}}\n',
    ],
)
def test_file_of_something_else_is_left_as_it_is(tmp_path: Path, found: bytes) -> None:
    store = FileStore(tmp_path)
    source = store.content(added(store, 2).input_file_id)
    out = tmp_path / "out.jsonl"
    out.write_bytes(found)
    with raises(ConfigError, "answers-of-another-file"):
        asyncio.run(BatchRun(source, out, tmp_path / "errors", never).run())
    assert out.read_bytes() == found


def test_bug_of_the_service_fails_the_batch_alone(tmp_path: Path) -> None:
    async def broken(path: str, body: Mapping[str, Any]) -> tuple[int, Mapping[str, Any]]:
        raise ZeroDivisionError

    batch, _ = ended(tmp_path, broken)
    assert batch.status == "failed"
    assert batch.errors is not None
    assert batch.errors.data[0].code == "internal_error"


def test_batches_that_wait_have_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_module, "MOST_WAITING", 2)

    async def add() -> None:
        store = FileStore(tmp_path)
        queue = BatchQueue(tmp_path, store, never)
        async with queue.running():
            queue.add(added(store, 1))
            queue.add(added(store, 1))
            with raises(ApplianceResourceExhausted, "too-many-batches"):
                queue.add(added(store, 1))

    asyncio.run(add())
