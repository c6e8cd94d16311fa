"""All rooms of a cluster as one object, wherever they run.

``LocalRooms`` keeps them in this process, ``RayRooms`` as actors. The coordinator knows no more
of a cluster than this.
"""

from __future__ import annotations

from typing import Any, Protocol

from wsc.core.room import Job, Report


class Rooms(Protocol):
    """The rooms of one running cluster."""

    def run(self, job: Job) -> list[Report]:
        """Let every room do its part of a job; returns when all are finished.

        Raises a WaferStreamError when a room fails (as of ``call``), dies, or waits too long; the
        rooms are then unusable and must be shut down.
        """

    def call(self, room: str, method: str, *args: Any) -> Any:
        """Call a method of one room between jobs and return its result.

        ``method`` may name, with dots, a method of a part of the room: ``store.fill``. Raises a
        WaferStreamError: the room's own, or an ApplianceRuntimeServerError for any other.
        """

    def call_all(self, method: str, *args: Any) -> None:
        """Call a method of every room, side by side where they can."""

    def shutdown(self) -> None:
        """End every room, and whatever process, socket and memory came with it. Idempotent."""
