"""All rooms in this process: one thread, one mailbox order, the same bits every time."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from operator import attrgetter
from typing import Any

import torch

from appliance.cores import UnlimitedCores
from swarmx.links.memory import MemoryArena
from wsc.core.errors import (
    ApplianceDeadlockError,
    ApplianceRuntimeServerError,
    WaferStreamError,
)
from wsc.core.messages import Envelope
from wsc.core.room import Job, Report, Room, RoomContext, RoomSpec


class LocalRooms:
    """Rooms that take turns: the oldest message is handled first."""

    def __init__(self, specs: Sequence[RoomSpec]) -> None:
        self._rooms: dict[str, Room] = {
            spec.name: spec.build(RoomContext(MemoryArena(), UnlimitedCores())) for spec in specs
        }

    def run(self, job: Job) -> list[Report]:
        with _single_threaded():
            return self._run(job)

    def _run(self, job: Job) -> list[Report]:
        mail: deque[Envelope] = deque()
        for name, room in self._rooms.items():
            with _blamed(name):
                mail.extend(room.begin(job))
        while mail:
            envelope = mail.popleft()
            with _blamed(envelope.target):
                mail.extend(self._rooms[envelope.target].handle(envelope))
        if waiting := [name for name, room in self._rooms.items() if not room.finished]:
            raise ApplianceDeadlockError(
                "no message is left but some roles wait", value=", ".join(waiting)
            )
        return [room.report() for room in self._rooms.values()]

    def call(self, room: str, method: str, *args: Any) -> Any:
        with _blamed(room):
            return attrgetter(method)(self._rooms[room])(*args)

    def call_all(self, method: str, *args: Any) -> None:
        for room in self._rooms:
            self.call(room, method, *args)

    def shutdown(self) -> None:
        self._rooms.clear()


@contextmanager
def _blamed(room: str) -> Iterator[None]:
    """Name the room that fails without an error of ours, as Ray does for an actor."""
    try:
        yield
    except WaferStreamError:
        raise
    except Exception as error:  # whatever the user's model and loader may raise
        raise ApplianceRuntimeServerError(
            f"{room} failed", where=room, value=repr(error)
        ) from error


@contextmanager
def _single_threaded() -> Iterator[None]:
    """Compute on one thread, as every actor does: the number of threads can change a bit."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
