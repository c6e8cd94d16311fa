"""The feed: each event once, whenever it comes."""

from __future__ import annotations

import asyncio

import pytest

from waferstream.management.door import feed
from waferstream.management.door.feed import Feed
from waferstream.management.model.event import Event, Waits


def event(number: int, workflow: str = "a") -> Event:
    return Event(number=number, time_s=0.0, workflow=workflow, fact=Waits(reason="systems"))


def numbers(made: Feed, workflow: str, after: int) -> list[int] | None:
    new = made.newer(workflow, after)
    return None if new is None else [each.number for each in new]


class Stored:
    """A store that has got more events whenever somebody looks at it."""

    def __init__(self) -> None:
        self.number = 0

    async def newest(self) -> int:
        self.number += 2
        return self.number - 1  # one more comes between the look and the reading

    async def events_after(self, number: int) -> list[Event]:
        return [event(each) for each in range(number + 1, self.number + 1)]


def test_event_that_comes_between_look_and_reading_is_told_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(feed, "LOOK_S", 0.0)
    stored = Stored()
    made = Feed(stored.newest, stored.events_after)

    async def look() -> None:
        running = asyncio.create_task(made.run())
        with made.listening("ann", "a") as news:
            while stored.number < 20:
                await asyncio.wait_for(news.wait(), 10)
                news.clear()
        running.cancel()

    asyncio.run(look())
    found = numbers(made, "a", 1)
    assert found is not None
    assert found == list(range(2, found[-1] + 1))
    assert numbers(made, "b", 1) == []


def test_what_is_no_longer_kept_is_read_from_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed, "LOOK_S", 0.0)
    monkeypatch.setattr(feed, "MOST_KEPT", 4)
    stored = Stored()
    made = Feed(stored.newest, stored.events_after)

    async def look() -> None:
        running = asyncio.create_task(made.run())
        while stored.number < 40:
            await asyncio.sleep(0)
        running.cancel()

    assert numbers(made, "a", 0) is None  # before the first look
    asyncio.run(look())
    assert numbers(made, "a", 10) is None
    assert len(made.newer("", stored.number - 5) or ()) <= 4


def test_store_that_fails_once_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed, "LOOK_S", 0.0)
    monkeypatch.setattr(feed, "_AGAIN_S", 0.0)
    stored = Stored()
    failures = iter([OSError(28, "no space"), ZeroDivisionError()])

    async def newest() -> int:
        if stored.number == 6 and (failure := next(failures, None)) is not None:
            raise failure
        return await stored.newest()

    async def look() -> None:
        running = asyncio.create_task(Feed(newest, stored.events_after).run())
        while stored.number < 20 and not running.done():
            await asyncio.sleep(0)
        running.cancel()

    asyncio.run(look())
    assert stored.number >= 20
