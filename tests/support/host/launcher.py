"""A launcher whose commands end when a test says so."""

from __future__ import annotations

from collections.abc import Mapping

from waferstream.management.launch.launcher import Ended, Launch, Running, State


class HandLauncher:
    """Starts nothing; ``end`` lets a command end."""

    runtime_address = "local"

    def __init__(self) -> None:
        self.launched: dict[str, Launch] = {}
        self.asked: list[str] = []
        self._states: dict[str, State] = {}

    def start(self, launch: Launch) -> None:
        if launch.id not in self._states:
            self._states[launch.id] = Running()
            self.launched[launch.id] = launch

    def end(self, id: str, exit_code: int | None = 0, message: str = "") -> None:
        self._states[id] = Ended(exit_code, message)

    def ask_to_end(self, id: str) -> None:
        self.asked.append(id)

    def kill(self, id: str) -> None:
        self._states[id] = Ended(137)

    def states(self) -> Mapping[str, State]:
        return dict(self._states)

    def forget(self, id: str) -> None:
        del self._states[id]

    def read_log(self, id: str, offset: int, limit: int) -> bytes:
        return b""

    def close(self) -> None:
        """Leave everything as it is."""
