"""Fill the systems of a session: start, back-fill, make room where that pays, and grow."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from waferstream.management.schedule.line import overdue, run_s
from waferstream.management.schedule.pool import Opening, Pool, Seat
from waferstream.management.schedule.state import Job, Rules

_MOST_TRIES = 4
"""Waiting jobs for which a decision thinks about making room; others wait behind them."""


class Filling:
    """One decision for one session.

    Attributes:
        waiting: Jobs that wait, in their order; those that were paused come last.
        pauses: Why jobs were paused, by name.
    """

    def __init__(self, pool: Pool, line: Sequence[Job], rules: Rules) -> None:
        self.pool = pool
        self.rules = rules
        self.waiting = list(line)
        self.pauses: dict[str, str] = {}
        self._head: Opening | None = None
        self._tries = _MOST_TRIES

    def fill(self) -> None:
        """Decide who gets what."""
        place = 0
        while place < len(self.waiting):
            job = self.waiting[place]
            if self._start(job, place) or (self._make_room(job) and self._start(job, place)):
                del self.waiting[place]
                continue
            if self._head is None:
                self._head = self.pool.opening(job)
                if self._overdue(job):  # it has a reservation; behind it, short jobs fill best
                    self.waiting[place + 1 :] = sorted(self.waiting[place + 1 :], key=run_s)
            if not self._tries and not (self.pool.groups and self.pool.free.total()):
                break
            place += 1
        self._grow()

    def _start(self, job: Job, place: int) -> bool:
        """Start a job if it fits and does not delay the first that waits."""
        kind = self.pool.kind_for(job, job.min_num_csx)
        if kind is None:
            return False
        size = self._size(job, kind, place)
        if not self._leaves_head(job, kind, size):
            return False
        self.pool.start(job, kind, size)
        return True

    def _size(self, job: Job, kind: str, place: int) -> int:
        """Return a size that leaves the least that the next jobs need."""
        following = islice(self.waiting, place + 1, place + self.pool.groups)
        most = self.pool.free[kind] - sum(other.min_num_csx for other in following)
        return max(job.min_num_csx, min(job.num_csx, most))

    def _leaves_head(self, job: Job, kind: str, size: int) -> bool:
        """Return whether the first waiting job can still start when it would; note what is left."""
        head = self._head
        if head is None or self.pool.now_s + job.time_s(kind, size, self.pool.now_s) <= head.at_s:
            return True
        taken = size if kind == head.kind else 0
        if head.spare < taken or head.spare_groups < 1:
            return False
        self._head = Opening(head.at_s, head.kind, head.spare - taken, head.spare_groups - 1)
        return True

    def _make_room(self, job: Job) -> bool:
        """Shrink or pause running jobs for a waiting one if that saves more than it costs."""
        if not self._tries:
            return False
        self._tries -= 1
        wait_s = self.pool.opening(job).at_s - self.pool.now_s
        return self._shrink_others(job, wait_s) or self._pause_another(job, wait_s)

    def _shrink_others(self, job: Job, wait_s: float) -> bool:
        """Take systems from the running jobs that end last."""
        if not self.pool.groups:
            return False
        kind = max(job.run_times, key=self._within_reach)
        missing = job.min_num_csx - self.pool.free[kind]
        cost_s, plan = 0.0, list[tuple[Seat, int]]()
        for seat in self._movable(kind):
            if missing <= 0:
                break
            spare = seat.size - seat.job.min_num_csx
            if spare and seat.job.priority >= job.priority:
                taken = min(spare, max(missing, (spare + 1) // 2))
                cost_s += self._shrink_cost_s(seat, seat.size - taken, job)
                plan.append((seat, seat.size - taken))
                missing -= taken
        if missing > 0 or not (self._overdue(job) or wait_s > self.rules.gain * cost_s):
            return False
        for seat, size in plan:
            self.pool.resize(seat, size)
        return True

    def _within_reach(self, kind: str) -> int:
        """Return how many systems of a kind are free, or would be if all jobs were shrunk."""
        return self.pool.free[kind] + sum(
            seat.size - seat.job.min_num_csx for seat in self.pool.seats if seat.kind == kind
        )

    def _shrink_cost_s(self, seat: Seat, size: int, job: Job) -> float:
        """Return the time that a job loses on fewer systems while another one runs."""
        now_s = self.pool.now_s
        slower = 1.0 - self._seconds(seat, seat.size) / self._seconds(seat, size)
        shared_s = min(
            job.time_s(next(iter(job.run_times)), job.min_num_csx, now_s),
            seat.job.time_s(seat.kind, size, now_s),
        )
        return seat.job.resize_s + slower * shared_s

    @staticmethod
    def _seconds(seat: Seat, size: int) -> float:
        return seat.job.run_times[seat.kind].seconds(size)

    def _movable(self, kind: str | None = None) -> list[Seat]:
        """Return the running jobs that can be resized or paused now, the last to end first."""
        seats = (
            seat
            for seat in self.pool.seats
            if seat.job.runs
            and seat.job.breathes
            and seat.job.ready_s <= self.pool.now_s
            and kind in (None, seat.kind)
        )
        return sorted(seats, key=lambda seat: (seat.job.priority, seat.ends_s), reverse=True)

    def _pause_another(self, job: Job, wait_s: float) -> bool:
        """Pause the running job of least priority that ends last."""
        for seat in self._movable():
            room = self.pool.free[seat.kind] + seat.size
            fits = seat.kind in job.run_times and room >= job.min_num_csx
            if fits and self._yields(seat, job, wait_s):
                self.pool.pause(seat)
                self.pauses[seat.job.name] = f"paused for {job.name}"
                self.waiting.append(seat.job)
                return True
        return False

    def _yields(self, seat: Seat, job: Job, wait_s: float) -> bool:
        """Return whether a running job gives way to a waiting one."""
        now_s = self.pool.now_s
        if self._overdue(job):
            return now_s - seat.job.starts_s > self.rules.quantum_s
        if seat.job.priority != job.priority:
            return seat.job.priority > job.priority and wait_s > seat.job.resize_s
        held_s = job.time_s(seat.kind, job.min_num_csx, now_s)
        pays = wait_s > self.rules.gain * (seat.job.resize_s + held_s)
        return pays and seat.ends_s - now_s > 2.0 * held_s

    def _overdue(self, job: Job) -> bool:
        return overdue(job, self.pool.now_s, self.rules)

    def _grow(self) -> None:
        """Give idle systems to the jobs that save most time by them."""
        if self.waiting and self.pool.groups:
            return  # the first one lacks systems
        while best := max(self._growths(), default=None, key=lambda growth: growth[0]):
            _, seat, size = best
            self.pool.resize(seat, size)

    def _growths(self) -> list[tuple[float, Seat, int]]:
        """Return the seconds that larger sizes save, where that pays, with seats and sizes."""
        found = []
        for seat in self.pool.seats:
            size = min(seat.job.num_csx, seat.size + self.pool.free[seat.kind])
            if size > seat.size and (not seat.job.runs or seat.job.ready_s <= self.pool.now_s):
                saved_s = seat.ends_s - self.pool.ends_s(seat, size)
                if saved_s > self.rules.growth_gain * seat.job.resize_s:
                    found.append((saved_s, seat, size))
        return found
