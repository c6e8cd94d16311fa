"""One follower: the events of a workflow and its log, as they come."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import suppress
from pathlib import Path

from waferstream.host.files import open_regular
from waferstream.management.door.calls import Calls
from waferstream.management.door.feed import Feed
from waferstream.management.door.handlers import Handlers
from waferstream.management.manager.access import shown_event
from waferstream.management.model.event import Ended, Event
from waferstream.management.model.operations import Caller, ReadEvents, ReadWorkflow
from waferstream.management.model.workflow import Stage

LOOK_S = 0.25
"""Between two looks at a log."""

CHECK_S = 10.0
"""After so long it is checked again who follows: a token may be revoked meanwhile."""

PART_BYTES = 1 << 20
"""The most of a log in one part."""


class Follower:
    """A place among the events of a workflow and in its log.

    Args:
        handlers: What is behind the doors.
        call: Calls them.
        feed: Says when there are new events, and has the newest ones.
        caller: Who follows.
        after: The number of the last event that it has.
        offset: The bytes of the log that it has; if negative, those at its end that it gets.
    """

    def __init__(
        self, handlers: Handlers, call: Calls, feed: Feed, caller: Caller, after: int, offset: int
    ) -> None:
        self._handlers, self._call, self._feed, self._caller = handlers, call, feed, caller
        self._after, self._offset = after, offset
        self._name = ""
        self._log: Path | None = None
        self._is_ended = False
        self._is_behind = True  # the store may have more

    async def parts(
        self, name: str, check: Callable[[], Awaitable[object]]
    ) -> AsyncGenerator[Event | bytes]:
        """Yield events and parts of the log until the workflow has ended.

        Args:
            name: The workflow; none for the events of all, which have no end.
            check: Raises an error when the caller may not follow any more.
        """
        if name:
            await self._find(name)
        with self._feed.listening(self._caller.user, self._name) as news:
            news.set()
            checked_s = time.monotonic()
            while True:
                events = await self._new_events(news)
                for event in events:
                    yield event
                part = await self._new_log()
                if part is not None:
                    yield part
                if not events and part is None:
                    if self._is_ended:
                        return
                    with suppress(TimeoutError):
                        await asyncio.wait_for(news.wait(), LOOK_S)
                if time.monotonic() - checked_s > CHECK_S:
                    checked_s = time.monotonic()
                    await check()

    async def _find(self, name: str) -> None:
        """Find the workflow by its name or that of a job."""
        workflow = await self._call(self._handlers.do, self._caller, ReadWorkflow(name=name))
        self._name = workflow.name
        self._is_ended = workflow.stage is Stage.ENDED
        self._log = await self._call(self._handlers.log_path, self._caller, workflow.name)
        if self._offset < 0:
            self._offset = max(0, _size_of(self._log) + self._offset)

    async def _new_events(self, news: asyncio.Event) -> list[Event]:
        """Return the next events, if there are new ones."""
        if not news.is_set():
            return []
        news.clear()
        events = None if self._is_behind else self._feed.newer(self._name, self._after)
        if events is None:
            question = ReadEvents(name=self._name, after=self._after)
            events = await self._call(self._handlers.do, self._caller, question)
            self._is_behind = bool(events)
        if events:
            news.set()  # there may be more
            self._after = events[-1].number
            is_end = any(isinstance(event.fact, Ended) for event in events)
            self._is_ended = self._is_ended or (bool(self._name) and is_end)
        return [shown_event(self._caller, each) for each in events]

    async def _new_log(self) -> bytes | None:
        """Return the next part of the log, if there is more."""
        if self._log is None or _size_of(self._log) <= self._offset:
            return None
        part = await self._call(_read_part, self._log, self._offset)
        self._offset += len(part)
        return part


def _size_of(path: Path) -> int:
    try:
        return os.stat(path).st_size
    except FileNotFoundError:
        return 0


def _read_part(path: Path, offset: int) -> bytes:
    with open(path, "rb", opener=open_regular) as file:
        file.seek(offset)
        return file.read(PART_BYTES)
