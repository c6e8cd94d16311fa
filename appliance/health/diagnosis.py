"""Which process keeps the others from going on, from the pulses of all.

A process that waits is a victim: the rules look for the one that is stopped, or that has been busy
with one thing for too long, and follow from it to those that wait for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from appliance.health.pulse import Activity, Pulse
from waferstream.core.errors import (
    ApplianceDeadlockError,
    ApplianceError,
    ApplianceRuntimeServerError,
    WaferStreamError,
)

_DOING: Mapping[Activity, str] = {
    Activity.IDLE: "between jobs",
    Activity.CALL: "in a call",
    Activity.WAIT: "waiting for a message",
    Activity.WORK: "handling a message",
}


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
