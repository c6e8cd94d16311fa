"""The states of a protected run, the changes between them, and log lines about them.

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

from appliance.recovery.parts import Parts


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
    """The state, and one line for each event, until somebody takes the lines.

    Args:
        clock: Seconds of real time.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.state = State.RUNNING
        self._clock = clock
        self.parts = Parts(clock)
        """The seconds of the last recovery, by state."""
        self._lines: list[str] = []

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

    def tell(self, line: str) -> None:
        """Add a line."""
        self._lines.append(line)

    def take(self) -> list[str]:
        """Return the lines since the last call."""
        lines, self._lines = self._lines, []
        return lines
