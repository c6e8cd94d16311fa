"""Waiting for many roles at once, and telling the cause of a failure from its consequences."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import ray
from ray.exceptions import RayError

from appliance.ray.failures import explained, is_symptom
from wsc.core.errors import ClusterJobInitError

_CAUSE_S = 2.0  # how long to wait, after a symptom, for the failure behind it


def gather(
    futures: Mapping[str, Any], logs: Mapping[str, str], timeout_s: float | None = None
) -> dict[str, Any]:
    """The results of all roles, in the order of ``futures``; ``logs`` are files to point at.

    The first failure ends the wait. A role that failed by itself is blamed at once; one that lost
    its link to another, or waited in vain, only if no such role is found a moment later.
    Raises ClusterJobInitError when some role is not ready after ``timeout_s``.
    """
    unfinished = {future: role for role, future in futures.items()}
    results = {}
    for role, outcome in _outcomes(unfinished, timeout_s):
        if isinstance(outcome, RayError):
            blamed, error = _cause(role, outcome, _outcomes(unfinished, _CAUSE_S))
            raise explained(blamed, error, logs.get(blamed)) from error
        results[role] = outcome
    if unfinished:
        raise ClusterJobInitError(
            "some roles did not come up",
            value=", ".join(unfinished.values()),
            rule=f"runtime.start_timeout_s: {timeout_s:g}",
            remedy="raise it, or free this computer of other work",
        )
    return {role: results[role] for role in futures}


def _outcomes(unfinished: dict[Any, str], timeout_s: float | None) -> Iterator[tuple[str, Any]]:
    """Results and errors as they come, struck off ``unfinished``, until the time is over."""
    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    while unfinished:
        left_s = None if deadline is None else max(0.0, deadline - time.monotonic())
        done, _ = ray.wait(list(unfinished), timeout=left_s)
        if not done:
            return
        yield unfinished.pop(done[0]), _outcome(done[0])


def _outcome(future: Any) -> Any:
    try:
        return ray.get(future)
    except RayError as error:
        return error


def _cause(role: str, error: RayError, others: Iterable[tuple[str, Any]]) -> tuple[str, RayError]:
    if is_symptom(error):
        for other, outcome in others:
            if isinstance(outcome, RayError) and not is_symptom(outcome):
                return other, outcome
    return role, error
