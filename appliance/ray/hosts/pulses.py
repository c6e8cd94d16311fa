"""Where the processes of actors are, their pulses, and the end of those that do not go on.

Pulses of this host are read in place. Another host is asked through a task of Ray that runs there:
it needs nothing of the actors, which may be stopped.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import ray
from ray.exceptions import RayError

from appliance.health.pulse import Pulse, read_pulse
from appliance.health.watch import HealthWatch, Limits
from appliance.ray.hosts.places import task_options
from appliance.ray.hosts.survey import silent_hosts
from appliance.spec import RuntimeSpec
from swarmx.links.endpoint import Address
from waferstream.core.errors import ApplianceRuntimeServerError
from waferstream.core.messages.payload import Payload


@dataclass(frozen=True)
class Presence:
    """Location of a process and of the ``roles`` in it.

    ``host`` is Ray's id of the host and ``host_address`` what people call it, empty on a private
    Ray. ``clock_ns`` is the time of day at which the host's performance counter was zero.
    """

    host: str
    pid: int
    address: Address
    log_path: str
    pulse: Payload
    host_address: str = ""
    clock_ns: int = 0
    roles: tuple[str, ...] = ()

    @property
    def where(self) -> str:
        """The host and the log file, for errors."""
        host = f"host {self.host_address}, " if self.host_address else ""
        return f"{host}log: {self.log_path}"


_ANSWER_S = 0.5
"""How long a look waits for tasks and kernels of other hosts; what comes later counts then."""


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
        return _between_processes({**look_at(near), **hosts.look(far)}, known)

    def end(role: str) -> None:
        presence = presences.get(role)
        if presence is not None and presence.host == here:
            with suppress(ProcessLookupError):
                os.kill(presence.pid, signal.SIGKILL)
        elif role in actors:
            ray.kill(actors[role])

    return HealthWatch(look, end, Limits(runtime.heartbeat_timeout_s, runtime.stall_timeout_s))


def _between_processes(
    pulses: Mapping[str, Pulse | None], presences: Mapping[str, Presence]
) -> dict[str, Pulse | None]:
    """Return pulses that wait for processes, by the names of ``presences``, in place of roles."""
    name_of = {role: name for name, each in presences.items() for role in each.roles}
    return {
        name: pulse
        and replace(pulse, peers=tuple({name_of.get(peer, peer): None for peer in pulse.peers}))
        for name, pulse in pulses.items()
    }


class RemoteHosts:
    """The hosts other than this one, each asked by one task at a time.

    A busy host may take long to run a task, but its kernel accepts a connection at once. So a host
    is silent only if neither answers.

    Args:
        find_silent: Returns those of some hosts that accept no connection within a time limit.
    """

    def __init__(
        self, find_silent: Callable[[Collection[str], float], Collection[str]] = silent_hosts
    ) -> None:
        self._find_silent = find_silent
        self._asked: dict[str, Any] = {}  # by host, until it answers
        self._late: set[str] = set()  # hosts that did not answer at the last look

    def look(self, presences: Mapping[str, Presence]) -> dict[str, Pulse | None]:
        """Return the pulses of actors on other hosts; None on a silent one."""
        hosts: dict[str, dict[str, Presence]] = {}
        for role, presence in presences.items():
            hosts.setdefault(presence.host, {})[role] = presence
        for host in hosts.keys() - self._asked.keys():
            task = ray.remote(**task_options(host))(look_at)
            self._asked[host] = task.remote(hosts[host])
        if not hosts:
            return {}
        with ThreadPoolExecutor(1) as pool:
            silent = pool.submit(self._find_silent, self._late & hosts.keys(), _ANSWER_S)
            futures = [self._asked[host] for host in hosts]
            done, _ = ray.wait(futures, num_returns=len(futures), timeout=_ANSWER_S)
        self._late = {host for host in hosts if self._asked[host] not in done}
        found: dict[str, Pulse | None] = {}
        for host, actors in hosts.items():
            if host not in self._late:
                found.update(_answer(self._asked.pop(host), actors))
            elif host in silent.result():
                found.update(dict.fromkeys(actors))
        return found


def _answer(future: Any, actors: Mapping[str, Presence]) -> dict[str, Pulse | None]:
    """Return the answer of a host, which lacks ended actors; None for each actor if it failed."""
    try:
        answer: dict[str, Pulse | None] = ray.get(future)
    except RayError:
        return dict.fromkeys(actors)
    return answer
