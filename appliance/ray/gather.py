"""Wait for results of many roles, and convert Ray's failures to errors of this project."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

import ray
from ray.exceptions import RayActorError, RayError, RayTaskError

from appliance.placement.host_memory import why_killed
from appliance.ray.connection.processes import lost_process, why_lost
from appliance.ray.hosts.pulses import Presence
from appliance.ray.hosts.survey import silent_hosts
from waferstream.core.errors import (
    ApplianceDeadlockError,
    ApplianceRuntimeServerError,
    ClusterJobInitError,
    WaferStreamError,
)

_CAUSE_S = 2.0  # how long to wait, after a symptom, for the failure behind it
_CHECK_S = 0.5
_SYMPTOMS = (ApplianceRuntimeServerError, ApplianceDeadlockError)


def gather(
    futures: Mapping[str, Any],
    presences: Mapping[str, Presence],
    timeout_s: float | None = None,
    findings: Mapping[str, WaferStreamError] = MappingProxyType({}),
    check: Callable[[], None] = lambda: None,
) -> dict[str, Any]:
    """Wait for the results of all roles and return them in the order of ``futures``.

    The first failure ends the wait. A role that failed by itself is named at once; a role that
    lost its link to another, or waited for a message in vain, is named only if no other role
    fails within a moment. ``presences`` are where the roles are, for the error; ``findings`` are
    the reasons for which the health watch has ended some of them. ``check`` is called while this
    waits, at least every half second, and may raise.

    Raises:
        ClusterJobInitError: A role is not ready after ``timeout_s``.
        WaferStreamError: The error of the role that failed first.
    """
    unfinished = {future: role for role, future in futures.items()}
    results = {}
    for role, outcome in outcomes(unfinished, timeout_s, check):
        if isinstance(outcome, RayError):
            failed, error = _cause(role, outcome, outcomes(unfinished, _CAUSE_S, check))
            if _is_symptom(error):
                failed = _on_silent_host(presences) or failed
            raise error_of(failed, error, presences.get(failed), findings.get(failed)) from error
        results[role] = outcome
    if unfinished:
        raise ClusterJobInitError(
            "some roles did not start in time",
            code="roles-not-started",
            value=", ".join(unfinished.values()),
            rule=f"runtime.start_timeout_s: {timeout_s:g}",
            remedy="raise runtime.start_timeout_s, or stop other work on this computer",
        )
    return {role: results[role] for role in futures}


def check_ray() -> None:
    """Raise ApplianceRuntimeServerError if a process of Ray has died.

    Without it Ray itself ends the program a minute later, or names a role that still lives.
    """
    if (name := lost_process()) is not None:
        raise ApplianceRuntimeServerError(
            f"Ray's {name} died",
            code="ray-process-died",
            where=name,
            value=why_lost(),
            rule="the processes of Ray live as long as the cluster",
            remedy="read Ray's logs; run the same command again to go on from the last checkpoint",
        )


def outcomes(
    unfinished: dict[Any, str],
    timeout_s: float | None,
    check: Callable[[], None] = lambda: None,
) -> Iterator[tuple[str, Any]]:
    """Yield results and errors as they arrive, and remove them from ``unfinished``."""
    deadline = math.inf if timeout_s is None else time.monotonic() + timeout_s
    while unfinished:
        check()
        left_s = max(0.0, deadline - time.monotonic())
        done, _ = ray.wait(list(unfinished), timeout=min(left_s, _CHECK_S))
        if done:
            yield unfinished.pop(done[0]), _outcome(done[0])
        elif left_s <= _CHECK_S:
            return


def _outcome(future: Any) -> Any:
    try:
        return ray.get(future)
    except RayError as error:
        return error


def _cause(role: str, error: RayError, others: Iterable[tuple[str, Any]]) -> tuple[str, RayError]:
    """Return the role and error behind a symptom, or the symptom if no other role fails."""
    if _is_symptom(error):
        for other, outcome in others:
            if isinstance(outcome, RayError) and not _is_symptom(outcome):
                return other, outcome
    return role, error


def _is_symptom(error: RayError) -> bool:
    """Return whether a role failed because another did: it lost its link, or waited in vain."""
    return isinstance(error, RayTaskError) and isinstance(error.cause, _SYMPTOMS)


def error_of(
    role: str, error: RayError, presence: Presence | None, finding: WaferStreamError | None
) -> WaferStreamError:
    """Return the error to raise for a failed role: its own, if it is a WaferStreamError."""
    where = role if presence is None else f"{role}, {presence.where}"
    may_be_lost = _is_symptom(error) or not isinstance(error, RayTaskError)
    if may_be_lost and presence and presence.host_address and silent_hosts({presence.host}):
        return _lost_with_host(role, presence)
    if isinstance(error, RayTaskError):
        if isinstance(error.cause, WaferStreamError):
            return error.cause
        return ApplianceRuntimeServerError(
            f"{role} failed", code="role-failed", where=where, value=repr(error.cause)
        )
    if isinstance(error, RayActorError) and finding is not None:
        return finding
    if isinstance(error, RayActorError):
        return ApplianceRuntimeServerError(
            f"{role} died",
            code="role-died",
            where=where,
            value=_reason(error),
            rule="every role lives as long as the cluster",
            remedy=f"{why_killed()}. Read the end of its log",
        )
    return ApplianceRuntimeServerError(
        f"{role} cannot be reached", code="role-unreachable", where=where, value=error
    )


def _on_silent_host(presences: Mapping[str, Presence]) -> str | None:
    """Return a role whose host does not answer any more, None if all do."""
    known = {p.host: role for role, p in presences.items() if p.host_address}
    silent = silent_hosts(known)
    return next((role for host, role in known.items() if host in silent), None)


def _lost_with_host(role: str, presence: Presence) -> ApplianceRuntimeServerError:
    return ApplianceRuntimeServerError(
        f"{role} was lost with its host {presence.host_address}",
        code="host-lost",
        where=f"{role}, {presence.where}",
        rule="a host answers as long as the cluster",
        remedy="the same command continues from the last checkpoint on the hosts that are left",
    )


def _reason(error: RayActorError) -> str:
    """Return the first sentence of Ray's last line, or all of it if the actor was not built."""
    text = str(error)
    if error.actor_init_failed:
        return text
    return text.splitlines()[-1].partition(" Some common causes")[0]
