"""The watch over the processes of a cluster: finds and ends those that are stopped or stalled.

A process that is found is killed, so that it cannot come back beside its replacement. To all other
processes it is one that died, and the watch states why.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from appliance.health.diagnosis import SILENT, STALLED, STOPPED, find_stalled
from appliance.health.pulse import Pulse
from waferstream.core.errors import WaferStreamError

_LOOKS = 10  # per time limit
_LONGEST_PERIOD_S = 1.0

Look = Callable[[], Mapping[str, Pulse | None]]
"""Returns the pulse of each role that runs; None for a role whose host does not answer."""


@dataclass(frozen=True)
class Limits:
    """The longest times that a process may be stopped, and be busy with one thing."""

    stopped_s: float
    stalled_s: float

    @property
    def period_s(self) -> float:
        """Seconds between two looks."""
        return min(_LONGEST_PERIOD_S, self.stopped_s / _LOOKS, self.stalled_s / _LOOKS)


class Judge:
    """The rules of the watch, without its thread: looks in, findings out."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._stopped_s: dict[str, float] = {}  # for how long a role has been stopped or silent

    def judge(
        self, pulses: Mapping[str, Pulse | None], elapsed_s: float
    ) -> dict[str, WaferStreamError]:
        """Return the error of each role that must be ended.

        Args:
            pulses: What the last look has seen.
            elapsed_s: Seconds since the look before. More than two periods count as two, so that a
                watch that was itself held up does not take its own absence for that of others.
        """
        limits, seen = self._limits, {r: p for r, p in pulses.items() if p is not None}
        counted_s = min(elapsed_s, 2 * limits.period_s)
        still = {r for r, p in pulses.items() if p is None or (p.is_alive and p.is_stopped)}
        self._stopped_s = {r: self._stopped_s.get(r, 0.0) + counted_s for r in still}
        found: dict[str, WaferStreamError] = {}
        limit_s = min(limits.stopped_s, limits.stalled_s)
        for role in sorted(still):
            if self._stopped_s[role] >= limit_s:
                condition = STOPPED if role in seen else SILENT
                found[role] = condition.of(role, seen, limit_s)
        if not still:  # whatever else takes long may wait for a stopped role
            alive = {role: pulse for role, pulse in seen.items() if pulse.is_alive}
            slowest = find_stalled(alive, limits.stalled_s)
            if slowest is not None:
                found[slowest] = STALLED.of(slowest, alive, limits.stalled_s)
        return found


class HealthWatch:
    """A thread that looks at all processes again and again, and ends those that do not go on.

    ``findings`` has the error of each role that it has ended.

    Args:
        look: Returns the pulses.
        end: Kills a role's process; called once for each finding.
        limits: The time limits.
    """

    def __init__(self, look: Look, end: Callable[[str], None], limits: Limits) -> None:
        self.findings: dict[str, WaferStreamError] = {}
        self._look = look
        self._looking = threading.Lock()
        self._end = end
        self._limits = limits
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="health-watch", daemon=True)
        self._thread.start()

    def look(self) -> Mapping[str, Pulse | None]:
        """Return the pulses of now."""
        with self._looking:
            return self._look()

    def close(self) -> None:
        """End the thread. Idempotent."""
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        judge, before_s = Judge(self._limits), time.monotonic()
        while not self._over.wait(self._limits.period_s):
            pulses, now_s = self.look(), time.monotonic()
            for role, error in judge.judge(pulses, now_s - before_s).items():
                self.findings[role] = error
                self._end(role)
            before_s = now_s
