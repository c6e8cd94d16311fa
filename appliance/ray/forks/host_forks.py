"""Fork servers on the hosts of a joined Ray: a role starts there in a third of the processor time.

The script with which a joined Ray starts workers was chosen when its hosts were started, so a
worker is forked through its runtime environment: ``py_executable`` names the launcher of a fork
server of that host (appliance.ray.forks.fork_server). An actor keeps the server, which ends with
it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from typing import Any

import ray
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from appliance.ray.forks.fork_server import start_server
from appliance.user_code import UserCode

LEAST_ROLES = 3
"""Fewer roles of a host load their code in less processor time than a fork server takes."""

_LOOK_S = 0.5  # between two looks at fork servers that start
_START_S = 30.0  # limit of their start
_KNOWN_KEYS = frozenset({"working_dir", "py_modules", "env_vars", "excludes", "config"})
"""Parts of a job's runtime environment that leave Ray's Python as it is."""


class ForkServerActor:
    """Actor that keeps the fork server of its host."""

    def __init__(self, user_code: UserCode) -> None:
        user_code.install()
        self._server = start_server()

    def executable(self) -> str:
        """Return the command that takes the place of Python for a worker of this host."""
        return self._server.executable


class HostForks:
    """The fork servers of some hosts, as options of Ray for an actor there.

    A host whose server does not start in time has none: Ray starts its workers by itself.

    Args:
        hosts: Ray's ids of the hosts.
        on_wait: Called while this waits, and may raise.
    """

    def __init__(self, hosts: Collection[str], on_wait: Callable[[], None] = lambda: None) -> None:
        self._actors = [] if _has_own_python() else [_start(host) for host in hosts]
        self._executables: dict[str, str] = {}
        asked = {
            actor.executable.remote(): host
            for actor, host in zip(self._actors, hosts, strict=False)
        }
        waited_s = 0.0
        while asked and waited_s < _START_S:
            on_wait()
            done, _ = ray.wait(list(asked), timeout=_LOOK_S)
            waited_s += 0.0 if done else _LOOK_S
            for future in done:
                with suppress(RayError):  # roles of this host meet the same failure and report it
                    self._executables[asked[future]] = ray.get(future)
                del asked[future]

    def options(self, host: str) -> Mapping[str, Any]:
        """Return the options that let an actor on a host be forked; none without a server."""
        if host not in self._executables:
            return {}
        return {"runtime_env": {"py_executable": self._executables[host]}}

    def close(self) -> None:
        """End the servers; the workers that they have started stay. Idempotent."""
        for actor in self._actors:
            with suppress(RayError):
                ray.kill(actor)
        self._actors, self._executables = [], {}


def _has_own_python() -> bool:
    """Return whether the job has a runtime environment with another Python."""
    return not ray.get_runtime_context().runtime_env.keys() <= _KNOWN_KEYS


def _start(host: str) -> Any:
    options: dict[str, Any] = {
        "num_cpus": 0,
        "scheduling_strategy": NodeAffinitySchedulingStrategy(host, soft=False),
        "enable_task_events": False,
    }
    return ray.remote(**options)(ForkServerActor).remote(UserCode.here())
