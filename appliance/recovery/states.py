"""The states of a protected run, the changes between them, and what its log says of them.

    running -> aborting -> deciding -> rebuilding -> rolling back -> running
                              |            |              |
                              v            +--------------+---> aborting
                          given up

docs/reliability.md has a table of these transitions and their conditions.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from enum import Enum

from waferstream.core.events import Duration, RecoveryEvent


class State(Enum):
    """What a protected cluster does."""

    RUNNING = "running"
    ABORTING = "aborting"
    DECIDING = "deciding"
    REBUILDING = "rebuilding"
    ROLLING_BACK = "rolling back"
    GIVEN_UP = "given up"


FOLLOWING: dict[State, frozenset[State]] = {
    State.RUNNING: frozenset({State.ABORTING}),
    State.ABORTING: frozenset({State.DECIDING}),
    State.DECIDING: frozenset({State.REBUILDING, State.GIVEN_UP}),
    State.REBUILDING: frozenset({State.ROLLING_BACK, State.ABORTING}),
    State.ROLLING_BACK: frozenset({State.RUNNING, State.ABORTING}),
    State.GIVEN_UP: frozenset(),
}
"""The states that may follow each one; a failure leads from every state of recovery to aborting."""


class Story:
    """The state, and the events until somebody takes them.

    Args:
        clock: Seconds of real time.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.state = State.RUNNING
        self._clock = clock
        self.parts = Parts(clock)
        """The seconds of the last recovery, by state."""
        self._events: list[RecoveryEvent] = []

    def enter(self, state: State) -> None:
        """Go on to a state that may follow."""
        assert state in FOLLOWING[self.state], f"{self.state} is not followed by {state}"
        if self.state is State.RUNNING:
            self.parts = Parts(self._clock)
        if state is State.RUNNING:
            self.parts.end()
        else:
            self.parts.begin(state.value)
        self.state = state

    def tell(self, event: RecoveryEvent) -> None:
        """Add an event."""
        self._events.append(event)

    def take(self) -> list[RecoveryEvent]:
        """Return the events since the last call."""
        events, self._events = self._events, []
        return events


class Parts:
    """The seconds of one recovery, in all and by part, in the order of the parts.

    Args:
        clock: Seconds of real time.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._began_s = self._since_s = clock()
        self._part = ""
        self._seconds: dict[str, float] = {}

    def begin(self, part: str) -> None:
        """Begin a part, perhaps once more; the one before ends."""
        self.end()
        self._part = part

    def end(self) -> None:
        """End the part that has begun."""
        now_s = self._clock()
        if self._part:
            self._seconds[self._part] = self._seconds.get(self._part, 0.0) + now_s - self._since_s
        self._part, self._since_s = "", now_s

    @property
    def duration(self) -> Duration:
        """All seconds until the end of the last part, and those of each part."""
        return Duration(self._since_s - self._began_s, dict(self._seconds))
