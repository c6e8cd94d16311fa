"""Which process keeps the others from going on, from the pulses of all.

A process that waits is a victim: the rules look for the one that is stopped, or that has been busy
with one thing for too long, and follow from it to those that wait for it.
"""

from __future__ import annotations

from collections.abc import Mapping

from appliance.health.pulse import Activity, Pulse
from wsc.core.errors import ApplianceDeadlockError, ApplianceRuntimeServerError, WaferStreamError

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
        pulses: What was seen last; None for a role on a silent host.
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


def stopped(role: str, pulses: Mapping[str, Pulse], limit_s: float) -> ApplianceRuntimeServerError:
    """Return the error for a role whose process a signal has stopped."""
    return ApplianceRuntimeServerError(
        f"{role} is stopped",
        code="role-stopped",
        where=role,
        value=_story(role, pulses),
        rule=f"a process is stopped for at most {limit_s:g} s (runtime.heartbeat_timeout_s)",
        remedy="a signal (SIGSTOP) has stopped the process; raise the limit if that was meant",
    )


def silent(role: str, limit_s: float) -> ApplianceRuntimeServerError:
    """Return the error for a role on a host that does not answer."""
    return ApplianceRuntimeServerError(
        f"the host of {role} does not answer",
        code="host-silent",
        where=role,
        rule=f"a host answers within {limit_s:g} s (runtime.heartbeat_timeout_s)",
        remedy="check the host and its network",
    )


def stalled(role: str, pulses: Mapping[str, Pulse], limit_s: float) -> ApplianceDeadlockError:
    """Return the error for a role that has been busy with one thing for too long."""
    return ApplianceDeadlockError(
        f"{role} does not go on",
        code="role-stalled",
        where=role,
        value=_story(role, pulses),
        rule=f"one message or call takes at most {limit_s:g} s (runtime.stall_timeout_s)",
        remedy="raise runtime.stall_timeout_s in cluster.yaml if a role computes longer than that",
    )


def _story(role: str, pulses: Mapping[str, Pulse]) -> str:
    pulse = pulses[role]
    text = f"{describe(pulse)} (step {pulse.step})"
    victims = waiting_for(role, pulses)
    return f"{text}; waiting for it: {', '.join(victims)}" if victims else text
