"""The actors of roles: their start, their end, and how they outlive a coordinator.

An actor ends with the process that has started it. So actors that the user's process has started
outlive a coordinator that is lost, and the next coordinator takes them over: loading the code of
all roles takes longer than everything else that a new cluster needs.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import RayError

from appliance.ray.actor import LEAVE_JOB, RoleActor
from appliance.ray.connection.processes import lost_process
from appliance.ray.gather import outcomes
from appliance.ray.hosts.places import Places, task_options
from appliance.ray.hosts.pulses import Presence
from appliance.ray.hosts.survey import silent_hosts
from appliance.user_code import UserCode
from swarmx.links.memory import unmap_lost_blocks

_END_S = 5.0  # within which ended processes must be gone
_POLL_S = 0.01
_GREETING_S = 0.5  # within which a host must answer before it is asked about processes
_LEAVE_S = 5.0  # within which a role leaves its job, or is replaced


def start_actor(role: str, session: str, places: Places) -> Any:
    """Return the handle of a new actor, which starts meanwhile."""
    options: dict[str, Any] = {
        "name": f"{session}/{role}",
        "enable_task_events": False,  # else Ray's gcs_server keeps 3 KiB of each call
        **places.options(role),
    }
    # A class named after the role: ps and Ray's messages show this name.
    named = type(role, (RoleActor,), {})
    return ray.remote(**options)(named).remote(UserCode.here())


def clear_actors(
    actors: Mapping[str, Any],
    presences: Mapping[str, Presence],
    on_wait: Callable[[], None] = lambda: None,
) -> dict[str, Any]:
    """Let all actors leave their jobs; end those that do not in time, and return the others.

    Args:
        actors: Their handles, by role.
        presences: Where the actors are, as far as it is known.
        on_wait: Called again and again while the caller waits, and may raise.
    """
    signal_processes(presences.values(), LEAVE_JOB)
    asked = {actor.presence.remote(): role for role, actor in actors.items()}
    free = {
        role
        for role, outcome in outcomes(asked, _LEAVE_S, on_wait)
        if not isinstance(outcome, RayError)
    }
    lost = [role for role in actors if role not in free]
    for role in lost:
        with suppress(RayError):
            ray.kill(actors[role])
    wait_until_ended([presences[role] for role in lost if role in presences], on_wait)
    return {role: actor for role, actor in actors.items() if role in free}


def signal_processes(presences: Iterable[Presence], number: int = signal.SIGKILL) -> None:
    """Send a signal to the processes of actors on this host, without Ray's help."""
    here = ray.get_runtime_context().get_node_id()
    for presence in presences:
        # A number can belong to another process by now; that of an actor has Ray's title.
        with suppress(OSError):
            title = Path(f"/proc/{presence.pid}/cmdline").read_bytes()
            if presence.host == here and title.startswith(b"ray::"):
                os.kill(presence.pid, number)


def wait_until_ended(
    presences: Iterable[Presence], on_wait: Callable[[], None] = lambda: None
) -> None:
    """Wait up to 5 s until killed processes have ended, on all hosts that answer.

    The memory that they had shared with this process is unmapped.
    """
    here = ray.get_runtime_context().get_node_id()
    by_host: dict[str, list[int]] = {}
    for presence in presences:
        by_host.setdefault(presence.host, []).append(presence.pid)
    near = by_host.pop(here, [])
    far = _ask_for_ends(by_host)
    deadline = time.monotonic() + _END_S
    while any(map(_runs, near)) and time.monotonic() < deadline:
        on_wait()
        time.sleep(_POLL_S)
    for _ in outcomes(far, max(0.0, deadline - time.monotonic()), on_wait):
        pass
    unmap_lost_blocks()


def _ask_for_ends(by_host: Mapping[str, Sequence[int]]) -> dict[Any, str]:
    """Return a task for each host that ends when the host's processes have ended."""
    if not by_host or lost_process() is not None:
        return {}
    silent = silent_hosts(by_host, _GREETING_S)
    asked = {}
    for host in by_host.keys() - silent:
        task = ray.remote(**task_options(host))(_await_ends)
        asked[task.remote(by_host[host], _END_S)] = host
    return asked


def _await_ends(pids: Sequence[int], limit_s: float) -> None:
    """Wait until processes of this host have ended, or the limit is over."""
    deadline = time.monotonic() + limit_s
    while any(map(_runs, pids)) and time.monotonic() < deadline:
        time.sleep(_POLL_S)


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except OSError:
        return False
    return True
