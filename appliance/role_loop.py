"""The loop around a role that has a process of its own."""

from __future__ import annotations

from wsc.core.link import Endpoint
from wsc.core.role import Job, Report, Role


def run_role(role: Role, endpoint: Endpoint, job: Job, stall_timeout_s: float) -> Report:
    """Do one role's part of a job: take messages as they come, send each answer at once.

    Raises what the role raises, and the endpoint's ApplianceRuntimeServerError when a peer is
    gone or ApplianceDeadlockError when none sends for ``stall_timeout_s``.
    """
    for envelope in role.begin(job):
        endpoint.send(envelope)
    while not role.finished:
        for envelope in role.handle(endpoint.receive(stall_timeout_s)):
            endpoint.send(envelope)
    return role.report()
