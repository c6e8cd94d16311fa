"""Questions of pages to the management, in the name of whoever has signed in."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import TypeVar

from waferstream.management.door.authentication import Shown
from waferstream.management.door.service import Service
from waferstream.management.model.event import Event
from waferstream.management.model.operations import Operation, ReadEvents

Result = TypeVar("Result")

MOST_EVENTS = 50_000
"""Events of a workflow that its page reads for its curves."""

_PAGE = 10_000


class Asking:
    """One who asks, by the token in a cookie."""

    def __init__(self, service: Service, token: str) -> None:
        self._service = service
        self._shown = Shown(f"Bearer {token}")

    async def __call__(self, operation: Operation[Result]) -> Result:
        """Return the result of an operation."""
        given = operation.model_dump(mode="json")
        text = await self._service.do(self._shown, type(operation).__name__, given)
        result: Result = operation.result.validate_json(text)
        return result

    async def events(self, name: str) -> list[Event]:
        """Return the events of a workflow so far, up to a limit."""
        found: list[Event] = []
        while len(found) < MOST_EVENTS:
            after = found[-1].number if found else 0
            more = await self(ReadEvents(name=name, after=after, limit=_PAGE))
            found += more
            if len(more) < _PAGE:
                break
        return found

    def follow(self, name: str, after: int, offset: int) -> AsyncGenerator[Event | bytes]:
        """Yield what is new of a workflow: events after one, and its log."""
        return self._service.follow(self._shown, name, after, offset)

    def file(self, name: str, path: str) -> AsyncGenerator[bytes]:
        """Yield the content of a file of a run."""
        return self._service.download(self._shown, name, path, 0)
