"""The pulses of actors on all hosts, and the end of actors that do not go on.

Pulses of this host are read in place. Another host is asked through a task of Ray that runs there:
it needs nothing of the actors, which may be stopped.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import ray
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from appliance.health.pulse import Pulse, read_pulse
from appliance.health.watch import HealthWatch, Limits
from appliance.ray.actor import Presence
from appliance.spec import RuntimeSpec
from wsc.core.errors import ApplianceRuntimeServerError

_ANSWER_S = 1.0


def look_at(presences: Mapping[str, Presence]) -> dict[str, Pulse]:
    """Return the pulse of each actor of this host that has one."""
    found = {}
    for role, presence in presences.items():
        with suppress(ApplianceRuntimeServerError):  # it has ended, and Ray says so, too
            found[role] = read_pulse(presence.pid, presence.pulse)
    return found


def watch_over(
    presences: Mapping[str, Presence],
    actors: Mapping[str, Any],
    runtime: RuntimeSpec,
) -> HealthWatch:
    """Start a watch over actors; both mappings may change while it runs.

    Args:
        presences: Where the actors are.
        actors: Their handles, to end those on other hosts.
        runtime: The time limits.
    """
    here = ray.get_runtime_context().get_node_id()
    hosts = RemoteHosts()

    def look() -> dict[str, Pulse | None]:
        known = dict(presences)
        near = {role: p for role, p in known.items() if p.host == here}
        far = {role: p for role, p in known.items() if p.host != here}
        return {**look_at(near), **hosts.look(far)}

    def end(role: str) -> None:
        presence = presences.get(role)
        if presence is not None and presence.host == here:
            with suppress(ProcessLookupError):
                os.kill(presence.pid, signal.SIGKILL)
        elif role in actors:
            ray.kill(actors[role])

    return HealthWatch(look, end, Limits(runtime.heartbeat_timeout_s, runtime.stall_timeout_s))


class RemoteHosts:
    """The hosts other than this one, each asked by one task at a time."""

    def __init__(self) -> None:
        self._asked: dict[str, Any] = {}  # by host, until it answers
        self._known: set[str] = set()  # hosts that have answered; the first answer takes longest

    def look(self, presences: Mapping[str, Presence]) -> dict[str, Pulse | None]:
        """Return the pulses of actors on other hosts; None where a known host does not answer."""
        hosts: dict[str, dict[str, Presence]] = {}
        for role, presence in presences.items():
            hosts.setdefault(presence.host, {})[role] = presence
        for host, actors in hosts.items():
            if host not in self._asked:
                there = NodeAffinitySchedulingStrategy(host, soft=False)
                options: dict[str, Any] = {
                    "num_cpus": 0,
                    "scheduling_strategy": there,
                    "enable_task_events": False,
                }
                self._asked[host] = ray.remote(**options)(look_at).remote(actors)
        if not hosts:
            return {}
        futures = [self._asked[host] for host in hosts]
        done, _ = ray.wait(futures, num_returns=len(futures), timeout=_ANSWER_S)
        found: dict[str, Pulse | None] = {}
        for host, actors in hosts.items():
            if self._asked[host] in done:
                self._known.add(host)
                found.update(_answer(self._asked.pop(host), actors))
            elif host in self._known:
                found.update(dict.fromkeys(actors))
        return found


def _answer(future: Any, actors: Mapping[str, Presence]) -> dict[str, Pulse | None]:
    """Return the answer of a host, which lacks ended actors; None for each actor if it failed."""
    try:
        answer: dict[str, Pulse | None] = ray.get(future)
    except RayError:
        return dict.fromkeys(actors)
    return answer
