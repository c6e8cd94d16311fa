"""The watch over the processes of a cluster: finds and ends those that are stopped or stalled.

A process that waits is a victim: the rules look for the one that is stopped, or that has been busy
with one thing for too long, and follow from it to those that wait for it.

A process that is found is killed, so that it cannot come back beside its replacement. To all other
processes it is one that died, and the watch states why.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from appliance.health.pulse import Activity, Pulse
from waferstream.core.errors import (
    ApplianceDeadlockError,
    ApplianceError,
    ApplianceRuntimeServerError,
    WaferStreamError,
)

_LOOKS = 10  # per time limit
_LONGEST_PERIOD_S = 1.0

Look = Callable[[], Mapping[str, Pulse | None]]
"""Returns the pulse of each role that runs; None for a role whose host does not answer."""

_DOING: Mapping[Activity, str] = {
    Activity.IDLE: "between jobs",
    Activity.CALL: "in a call",
    Activity.WAIT: "waiting for a message",
    Activity.WORK: "handling a message",
}


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


def find_stalled(pulses: Mapping[str, Pulse], limit_s: float) -> str | None:
    """Return the role that has been busy with one thing for longest, if for ``limit_s`` or more."""
    busy = {
        role: pulse.age_s
        for role, pulse in pulses.items()
        if pulse.activity in (Activity.CALL, Activity.WORK) and pulse.age_s >= limit_s
    }
    return max(busy, key=busy.__getitem__, default=None)


def waiting_for(role: str, pulses: Mapping[str, Pulse]) -> list[str]:
    """Return the roles that wait for a role, directly or through others, nearest first."""
    found = [role]
    for cause in found:
        found += [
            other
            for other, pulse in pulses.items()
            if pulse.activity is Activity.WAIT and cause in pulse.peers and other not in found
        ]
    return found[1:]


def describe(pulse: Pulse) -> str:
    """Return in words what a process does, and since when."""
    what = f": {pulse.detail}" if pulse.detail else ""
    return f"{_DOING[pulse.activity]} for {pulse.age_s:.1f} s{what}"


def all_wait(pulses: Mapping[str, Pulse | None], error: ApplianceDeadlockError) -> WaferStreamError:
    """Return the error for a job in which messages are missing: who waits for whom.

    Args:
        pulses: What they do now; None for a role on a silent host.
        error: What the role raised that gave up first.
    """
    waits = [
        f"{role} waits for {', '.join(pulse.peers)} ({pulse.detail})"
        for role, pulse in pulses.items()
        if pulse is not None and pulse.activity is Activity.WAIT and pulse.peers
    ]
    return ApplianceDeadlockError(
        "every role waits for a message",
        code="roles-stalled",
        where=error.where,
        value="; ".join(waits) or None,
        rule=error.rule,
        remedy=error.remedy,
    )


@dataclass(frozen=True)
class Condition:
    """A way in which a process keeps the others from going on, as an error states it.

    ``rule`` has a place for the limit in seconds.
    """

    error: type[ApplianceError]
    code: str
    what: str
    rule: str
    remedy: str

    def of(self, role: str, pulses: Mapping[str, Pulse], limit_s: float) -> ApplianceError:
        """Return the error for a role in this condition; its pulse may be missing."""
        return self.error(
            self.what.format(role=role),
            code=self.code,
            where=role,
            value=_story(role, pulses) if role in pulses else None,
            rule=self.rule.format(limit_s=limit_s),
            remedy=self.remedy,
        )


STOPPED = Condition(
    ApplianceRuntimeServerError,
    "role-stopped",
    "{role} is stopped",
    "a process is stopped for at most {limit_s:g} s (runtime.heartbeat_timeout_s)",
    "a signal (SIGSTOP) has stopped the process; raise the limit if that was meant",
)
SILENT = Condition(
    ApplianceRuntimeServerError,
    "host-silent",
    "the host of {role} does not answer",
    "a host answers within {limit_s:g} s (runtime.heartbeat_timeout_s)",
    "check the host and its network",
)
STALLED = Condition(
    ApplianceDeadlockError,
    "role-stalled",
    "{role} does not go on",
    "one message or call takes at most {limit_s:g} s (runtime.stall_timeout_s)",
    "raise runtime.stall_timeout_s in cluster.yaml if a role computes longer than that",
)


def _story(role: str, pulses: Mapping[str, Pulse]) -> str:
    pulse = pulses[role]
    text = f"{describe(pulse)} (step {pulse.step})"
    victims = waiting_for(role, pulses)
    return f"{text}; waiting for it: {', '.join(victims)}" if victims else text
