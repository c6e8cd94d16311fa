"""Waits for messages that were on their way between hosts: what a slow link costs.

A link between hosts states in each message when it took it. A role that waits for a message waits
for the link from then on, and for the sender before. Times of two hosts are compared, so a wait is
wrong by as much as their clocks differ; it is never more than the role has waited.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import replace

from waferstream.core.messages.messages import Envelope
from waferstream.core.roles.activities import ActivityLog, Interval, Place
from waferstream.core.roles.role import Job, Report

_LINK = "link"
"""The activity of waiting for a message that is on its way."""

_LEAST_NS = 100_000  # what it takes to take a message that has arrived is no wait


class LinkWaits:
    """The waits of one role during a job.

    Args:
        job: The job, which says how many of them a trace keeps.
    """

    def __init__(self, job: Job) -> None:
        self._kind = job.kind
        self._log = ActivityLog(job.trace_limit)
        self._seconds: dict[str, float] = {}  # by the sender

    def note(self, begin_ns: int, envelope: Envelope) -> None:
        """Count the wait from ``begin_ns`` until now, which a message has ended.

        Args:
            begin_ns: When it began (``time.perf_counter_ns``).
            envelope: The message.
        """
        if not envelope.sent_ns:
            return
        end_ns = time.perf_counter_ns()
        waited_ns = min(end_ns - begin_ns, time.time_ns() - envelope.sent_ns)
        if waited_ns >= _LEAST_NS:
            source = envelope.source
            self._seconds[source] = self._seconds.get(source, 0.0) + waited_ns / 1e9
            place = Place(self._kind, envelope.message.step)
            start_ns = end_ns - waited_ns
            self._log.add(Interval(_LINK, start_ns, end_ns, place, source))

    def add_to(self, report: Report) -> Report:
        """Return a report of the job with these waits."""
        return replace(
            report,
            link_waits=self._seconds,
            intervals=[*report.intervals, *self._log.intervals],
            num_lost=report.num_lost + self._log.num_lost,
        )


def between_hosts(report: Report, host_of: Mapping[str, str]) -> Report:
    """Return a report whose waits are named by hosts; those within a host are left out.

    Args:
        report: Of one role, with waits by the sender.
        host_of: The address of every role's host.
    """
    here = host_of[report.role]
    names = {
        role: f"{host_of[role]} to {here}"
        for role in report.link_waits
        if host_of.get(role, here) != here
    }
    waits: dict[str, float] = {}
    for role, name in names.items():
        waits[name] = waits.get(name, 0.0) + report.link_waits[role]
    intervals = [
        replace(each, detail=f"{each.detail}, {names[each.detail]}")
        if each.activity == _LINK
        else each
        for each in report.intervals
        if each.activity != _LINK or each.detail in names
    ]
    return replace(report, link_waits=waits, intervals=intervals)


def longest_waits(reports: Iterable[Report]) -> dict[str, float]:
    """Return for each link the seconds of the role that has waited longest for it."""
    found: dict[str, float] = {}
    for report in reports:
        for link, seconds in report.link_waits.items():
            found[link] = max(seconds, found.get(link, 0.0))
    return found
