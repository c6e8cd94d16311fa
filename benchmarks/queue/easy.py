"""EASY back-fill with true run times: what a cluster without an idea of sizes does at its best.

D. Lifka, "The ANL/IBM SP scheduling system", 1995. Jobs start as they were submitted; a later one
starts earlier if it does not delay the first that waits. A job takes a group as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush
from math import inf

from waferstream.management.schedule.trace import TraceJob


def easy_starts_s(trace: Sequence[TraceJob], systems: int, groups: int) -> list[float]:
    """Return when each job starts, in the order of submission."""
    cluster = _Cluster(trace, systems, groups)
    for number, job in enumerate(trace):
        while cluster.ends and cluster.ends[0][0] <= job.submitted_s:
            cluster.end_next()
        cluster.submit(number, job.submitted_s)
    while cluster.ends:
        cluster.end_next()
    return cluster.starts_s


class _Cluster:
    """What runs and what waits."""

    def __init__(self, trace: Sequence[TraceJob], systems: int, groups: int) -> None:
        self._trace = trace
        self._systems = systems
        self._groups = groups
        self._waiting: list[int] = []
        self.ends: list[tuple[float, int]] = []
        self.starts_s = [inf] * len(trace)

    def submit(self, number: int, now_s: float) -> None:
        """Take in a job."""
        self._waiting.append(number)
        self._fill(now_s)

    def end_next(self) -> None:
        """End the job that ends first."""
        now_s, number = heappop(self.ends)
        self._systems += self._trace[number].systems
        self._groups += 1
        self._fill(now_s)

    def _fill(self, now_s: float) -> None:
        while self._waiting and self._fits(self._waiting[0]):
            self._start(self._waiting.pop(0), now_s)
        if self._waiting and self._systems and self._groups:
            self._fill_behind(now_s)

    def _fill_behind(self, now_s: float) -> None:
        """Start jobs that do not delay the first one."""
        shadow_s, spare, spare_groups = self._reservation()
        for number in self._waiting[1:]:
            job = self._trace[number]
            if not (self._systems and self._groups):
                return
            if not self._fits(number):
                continue
            if now_s + job.run_s > shadow_s:
                if job.systems > spare or not spare_groups:
                    continue
                spare, spare_groups = spare - job.systems, spare_groups - 1
            self._waiting.remove(number)
            self._start(number, now_s)

    def _reservation(self) -> tuple[float, int, int]:
        """Return when the first waiting job can start, and what it then leaves."""
        needed = self._trace[self._waiting[0]].systems
        systems, groups = self._systems, self._groups
        for end_s, number in sorted(self.ends):
            systems += self._trace[number].systems
            groups += 1
            if systems >= needed:
                return end_s, systems - needed, groups - 1
        raise AssertionError("a job asks for more systems than there are")

    def _fits(self, number: int) -> bool:
        return self._groups > 0 and self._trace[number].systems <= self._systems

    def _start(self, number: int, now_s: float) -> None:
        job = self._trace[number]
        self._systems -= job.systems
        self._groups -= 1
        self.starts_s[number] = now_s
        heappush(self.ends, (now_s + job.run_s, number))
