"""What both doors do: they tell who asks, keep limits, and pass on to what is behind."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from concurrent.futures import Executor
from contextlib import aclosing
from pathlib import Path, PurePosixPath
from typing import Any

from waferstream.core.bucket import Bucket
from waferstream.core.errors import ConfigError, RequestRefused
from waferstream.core.units import MIB
from waferstream.host.files import open_regular
from waferstream.host.user_state import open_private
from waferstream.management.door.authentication import Authentication, Shown
from waferstream.management.door.calls import Calls, within
from waferstream.management.door.feed import Feed
from waferstream.management.door.following import Follower
from waferstream.management.door.handlers import Handlers, do_plain
from waferstream.management.model.event import Event
from waferstream.management.model.operations import Caller, ReadEvents
from waferstream.management.model.packages import MOST_PACKED_BYTES

UPLOAD_S = 600.0
"""How long an upload may take."""

CHUNK_BYTES = MIB
"""The most that is sent of a file at a time."""

CALLS, CALLS_PERIOD_S = 600, 10.0
"""How often a user may ask in a time."""

_MOST_UPLOADS = 4  # at a time
_MOST_COUNTED = 4096  # users and runs whose calls are counted; then counting begins anew

_OWN = Caller(user="management", role="administrator")


class Service:
    """A management for callers who are far.

    Args:
        handlers: What is behind the doors.
        authentication: Who asks.
        executor: Threads that call them.
    """

    def __init__(
        self, handlers: Handlers, authentication: Authentication, executor: Executor
    ) -> None:
        self._handlers, self._authentication = handlers, authentication
        self._call = Calls(executor)
        self._buckets: dict[str, Bucket] = {}
        self._uploads = asyncio.Semaphore(_MOST_UPLOADS)
        self.feed = Feed(
            lambda: self._call(handlers.newest_event),
            lambda after: self._call(handlers.do, _OWN, ReadEvents(after=after)),
        )

    async def caller(self, shown: Shown) -> Caller:
        """Return who asks, as long as it does not ask too often."""
        caller = await self._call(self._authentication.caller, shown)
        self._count(caller.user, time.monotonic())
        return caller

    async def do(self, shown: Shown, name: str, given: Mapping[str, Any]) -> bytes:
        """Do an operation; return its result as JSON."""
        caller = await self.caller(shown)
        return await self._call(do_plain, self._handlers, caller, name, given)

    async def follow(
        self, shown: Shown, name: str, after: int, offset: int
    ) -> AsyncGenerator[Event | bytes]:
        """Yield events after a number, and the log from a place on, until the workflow ends."""
        caller = await self.caller(shown)
        follower = Follower(self._handlers, self._call, self.feed, caller, after, offset)
        parts = follower.parts(name, lambda: self._call(self._authentication.caller, shown))
        async with aclosing(parts):
            async for part in parts:
                yield part

    async def upload(self, shown: Shown, chunks: AsyncIterator[bytes]) -> str:
        """Take a package in, and return its digest."""
        caller = await self.caller(shown)
        async with within(UPLOAD_S), self._uploads:
            path = await self._call(self._handlers.upload_path)
            try:
                await self._receive(path, chunks)
                return await self._call(self._handlers.keep_package, caller, path)
            finally:
                path.unlink(missing_ok=True)

    async def download(
        self, shown: Shown, workflow: str, path: str, offset: int
    ) -> AsyncGenerator[bytes]:
        """Yield the content of a file of a run, from a place on."""
        caller = await self.caller(shown)
        _check_path(path)
        found = await self._call(self._handlers.file_path, caller, workflow, path)
        with open(found, "rb", opener=open_regular) as file:
            file.seek(min(offset, os.fstat(file.fileno()).st_size))
            while content := await self._call(file.read, CHUNK_BYTES):
                yield content

    async def _receive(self, path: Path, chunks: AsyncIterator[bytes]) -> None:
        """Write what comes into a file."""
        size_bytes = 0
        with open(path, "xb", opener=open_private) as file:
            async for chunk in chunks:
                size_bytes += len(chunk)
                if size_bytes > MOST_PACKED_BYTES:
                    raise ConfigError(
                        "the package of the working directory is not taken",
                        code="package-too-large",
                        value=f"{size_bytes:,} bytes so far",
                        rule=f"at most {MOST_PACKED_BYTES:,} bytes",
                        remedy="list what is not needed in .waferstreamignore",
                    )
                await self._call(file.write, chunk)

    def _count(self, user: str, now_s: float) -> None:
        """Count a call; RequestRefused where there were too many."""
        if len(self._buckets) > _MOST_COUNTED:
            self._buckets.clear()
        bucket = self._buckets.setdefault(user, Bucket.full(CALLS, CALLS_PERIOD_S, now_s))
        wait_s = bucket.wait_s(1, now_s)
        if wait_s > 0:
            raise RequestRefused(
                "a user may ask a limited number of times",
                code="rate-limit-exceeded",
                where=user,
                rule=f"{CALLS} in {CALLS_PERIOD_S:.0f} s",
                remedy=f"ask again in {wait_s:.1f} s",
            ).until(wait_s)
        bucket.take(1, now_s)


def _check_path(path: str) -> None:
    """Raise ConfigError for a path that is not one below a folder."""
    is_below = bool(path) and not path.startswith("/") and ".." not in PurePosixPath(path).parts
    if not is_below or "\0" in path:
        raise ConfigError(
            "a file of a run must be below its folder", code="path-escapes", value=repr(path)
        )
