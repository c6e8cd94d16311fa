"""Who follows which workflow, and that something is new there."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import takewhile

from waferstream.core.errors import RequestRefused
from waferstream.management.door.calls import typed
from waferstream.management.model.event import Event

log = logging.getLogger("waferstream")

LOOK_S = 0.05
"""Between two looks at the number of the newest event, which are one for all followers."""

MOST_KEPT = 512
"""Newest events that all followers share, without reading each of them again."""

MOST_FOLLOWED = 256
"""What one caller may follow at a time."""

_AGAIN_S = 2.0  # after the store has failed


class Feed:
    """Wakes followers when something is new, and has the newest events for all of them.

    Args:
        newest_event: Returns the number of the newest event.
        events_after: Returns the next events after a number.
    """

    def __init__(
        self,
        newest_event: Callable[[], Awaitable[int]],
        events_after: Callable[[int], Awaitable[list[Event]]],
    ) -> None:
        self._newest_event, self._events_after = newest_event, events_after
        self._listening: dict[str, set[asyncio.Event]] = {}
        self._followed: Counter[str] = Counter()
        self._kept: deque[Event] = deque()
        self._whole_after: int | None = None  # all events with greater numbers are kept

    @contextmanager
    def listening(self, user: str, workflow: str) -> Iterator[asyncio.Event]:
        """Yield what is set when a workflow has a new event; any workflow, if none is named.

        Raises:
            RequestRefused: The user follows too much.
        """
        if self._followed[user] >= MOST_FOLLOWED:
            raise RequestRefused(
                "a user follows a limited number of workflows at a time",
                code="too-many-followed",
                where=user,
                rule=f"at most {MOST_FOLLOWED}",
                remedy="end a command that follows",
            )
        news = asyncio.Event()
        self._followed[user] += 1
        self._listening.setdefault(workflow, set()).add(news)
        try:
            yield news
        finally:
            self._followed -= Counter({user: 1})
            self._listening[workflow].discard(news)
            if not self._listening[workflow]:
                del self._listening[workflow]

    def newer(self, workflow: str, after: int) -> list[Event] | None:
        """Return events after a number, of one workflow or of all; None if some are not kept."""
        if self._whole_after is None or after < self._whole_after:
            return None
        new = list(takewhile(lambda event: event.number > after, reversed(self._kept)))
        return [event for event in reversed(new) if workflow in ("", event.workflow)]

    async def run(self) -> None:
        """Look for events until it is cancelled."""
        seen = None
        while True:
            try:
                seen = await self._look(seen)
                await asyncio.sleep(LOOK_S)
            except Exception as error:  # the doors stay open, whatever the store does
                log.warning("Followers wait: %s", typed(error))
                await asyncio.sleep(_AGAIN_S)

    async def _look(self, seen: int | None) -> int:
        """Take what is new, and wake those who follow it; return the number of the newest."""
        newest = await self._newest_event()
        if seen is None:
            self._whole_after = newest
            self._wake(self._listening)
            return newest
        while seen < newest and (events := await self._events_after(seen)):
            self._keep(events)
            self._wake({"", *(event.workflow for event in events)})
            seen = events[-1].number
        return max(seen, newest)  # more may have come since the look

    def _keep(self, events: Sequence[Event]) -> None:
        self._kept.extend(events)
        while len(self._kept) > MOST_KEPT:
            self._whole_after = self._kept.popleft().number

    def _wake(self, names: Iterable[str]) -> None:
        for name in names:
            for news in self._listening.get(name, ()):
                news.set()
