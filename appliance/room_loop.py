"""The loop around a room that has a process of its own."""

from __future__ import annotations

from wsc.core.link import Endpoint
from wsc.core.room import Job, Report, Room


def run_room(room: Room, endpoint: Endpoint, job: Job, stall_timeout_s: float) -> Report:
    """Do one room's part of a job: take messages as they come, send each answer at once.

    Raises what the room raises, and the endpoint's ApplianceRuntimeServerError when a peer is
    gone or ApplianceDeadlockError when none sends for ``stall_timeout_s``.
    """
    for envelope in room.begin(job):
        endpoint.send(envelope)
    while not room.finished:
        for envelope in room.handle(endpoint.receive(stall_timeout_s)):
            endpoint.send(envelope)
    return room.report()
