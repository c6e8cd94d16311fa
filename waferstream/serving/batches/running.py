"""How the requests of a file are answered: some at a time, written in their order.

A run that was stopped goes on where its files end: a line that was written is not asked again.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from waferstream.core.errors import ApplianceRuntimeServerError, ConfigError
from waferstream.serving.batches.lines import Line, lines_of

Ask = Callable[[str, Mapping[str, Any]], Awaitable[tuple[int, Mapping[str, Any]]]]
"""Answers the body of a request to a path with a status and a body."""

LANES = 16
"""The most requests of a file that are asked at once."""

AHEAD = 64
"""The most requests that are asked, or wait for an earlier one to be written."""

_UNAVAILABLE = 503

_BEGIN = b'{"id": "batch_req_'
"""How every record begins."""


@dataclass
class Progress:
    """What was done of a file of requests."""

    completed: int = 0
    failed: int = 0
    input_tokens: int = 0
    output_tokens: int = 0

    def add(self, record: Mapping[str, Any]) -> None:
        """Count a line that was written."""
        response = record["response"]
        if response is None or response["status_code"] != 200:
            self.failed += 1
            return
        self.completed += 1
        usage = response["body"]["usage"]
        self.input_tokens += usage.get("prompt_tokens", usage.get("input_tokens", 0))
        self.output_tokens += usage.get("completion_tokens", usage.get("output_tokens", 0))


class BatchRun:
    """The requests of a file under way.

    Args:
        source: The file, which was checked.
        results: Gets the answers, a line each.
        errors: Gets what was refused.
        ask: Answers a request.
    """

    def __init__(self, source: Path, results: Path, errors: Path, ask: Ask) -> None:
        self._source = source
        self._paths = results, errors
        self._ask = ask
        self._lanes = asyncio.Semaphore(LANES)
        self.progress = Progress()

    async def run(self) -> None:
        """Answer all requests whose answers are not there.

        Raises:
            ApplianceRuntimeServerError: Nothing is answered any more.
            ConfigError: The files have something else than answers to these requests.
            OSError: An answer cannot be written.
        """
        written = self.recover()
        self._check_names(written)
        asked: deque[asyncio.Task[dict[str, Any]]] = deque()
        with ExitStack() as stack:
            results, errors = (stack.enter_context(path.open("ab")) for path in self._paths)
            try:
                for _, line in lines_of(self._source):
                    if not isinstance(line, Line) or line.custom_id in written:
                        continue
                    asked.append(asyncio.create_task(self._answered(line)))
                    if len(asked) == AHEAD:
                        self._write(await asked.popleft(), results, errors)
                while asked:
                    self._write(await asked.popleft(), results, errors)
            finally:
                for task in asked:
                    task.cancel()
                await asyncio.gather(*asked, return_exceptions=True)

    def recover(self) -> set[str]:
        """Cut torn records off the answers that are there; return the names of the others.

        Raises:
            ConfigError: A file has something else than answers.
        """
        self.progress = Progress()
        names: set[str] = set()
        for path in self._paths:
            path.touch(mode=0o600)
            with path.open("rb+") as file:
                end = 0
                for number, raw in enumerate(file, 1):
                    if _is_torn(raw):
                        break
                    record = _record(raw, path, number)
                    names.add(record["custom_id"])
                    self.progress.add(record)
                    end += len(raw)
                file.truncate(end)
        return names

    def _check_names(self, written: set[str]) -> None:
        """Raise ConfigError if answers that are there belong to no request of the file."""
        if not written:
            return
        asked = {line.custom_id for _, line in lines_of(self._source) if isinstance(line, Line)}
        if foreign := written - asked:
            raise _foreign(self._paths[0], f"an answer to {min(foreign)!r}")

    def give_up(self, code: str, message: str) -> None:
        """Write an error for every request whose answer is not there."""
        written = self.recover()
        with self._paths[1].open("ab") as errors:
            for _, line in lines_of(self._source):
                if isinstance(line, Line) and line.custom_id not in written:
                    error = {"code": code, "message": message}
                    record = {**_about(line), "response": None, "error": error}
                    errors.write(json.dumps(record).encode() + b"\n")
                    self.progress.add(record)

    async def _answered(self, line: Line) -> dict[str, Any]:
        """Return what is written for a request."""
        async with self._lanes:
            status, body = await self._ask(line.url, line.seeded())
        if status == _UNAVAILABLE:
            raise ApplianceRuntimeServerError(
                "a batch must be answered", code="batch-not-answered", value=body
            )
        response = {"status_code": status, "request_id": f"req_{_name(line)}", "body": body}
        return {**_about(line), "response": response, "error": None}

    def _write(self, record: Mapping[str, Any], results: BinaryIO, errors: BinaryIO) -> None:
        file = results if record["response"]["status_code"] == 200 else errors
        file.write(json.dumps(record).encode() + b"\n")
        file.flush()
        self.progress.add(record)


def _is_torn(raw: bytes) -> bool:
    """Return whether a line is the begin of a record that was not written to its end."""
    return not raw.endswith(b"\n") and raw[: len(_BEGIN)] == _BEGIN[: len(raw)]


def _record(raw: bytes, path: Path, number: int) -> dict[str, Any]:
    """Return a record that was written."""
    try:
        record = json.loads(raw)
        assert isinstance(record["custom_id"], str)
        Progress().add(record)
    except (ValueError, LookupError, TypeError, AttributeError, AssertionError) as error:
        raise _foreign(path, f"line {number}") from error
    return dict(record)


def _foreign(path: Path, value: str) -> ConfigError:
    return ConfigError(
        "a file of answers must have those of its requests, or nothing",
        code="answers-of-another-file",
        where=str(path),
        value=value,
        remedy="name another file",
    )


def _about(line: Line) -> dict[str, str]:
    """Return what says of which request a record is."""
    return {"id": f"batch_req_{_name(line)}", "custom_id": line.custom_id}


def _name(line: Line) -> str:
    return hashlib.sha256(line.custom_id.encode()).hexdigest()[:32]
