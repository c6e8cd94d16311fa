"""Say of every waiting job why it waits, when it is expected to start, and what would be sooner."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

from waferstream.management.schedule.actions import Expected, Wait
from waferstream.management.schedule.filling import Filling
from waferstream.management.schedule.pool import Pool
from waferstream.management.schedule.state import NEVER_S, Job, Session

_MEMORY = 500
"""Waits from which intervals are learnt."""

_LEAST = 20
"""Waits without which nothing is learnt."""

_OUTSIDE = 0.04
"""Share of the waits beyond each end of an interval: it is to hold 90 of 100."""

_MOST_NAMES = 8
"""Running jobs that a reason names."""


@dataclass(frozen=True, slots=True)
class Forecast:
    """How far waits were from what was expected: between these factors in 90 of 100 cases."""

    low: float = 0.0
    high: float = 3.0
    margin_s: float = 60.0
    """A wait is expected to be so much longer or shorter, however short it is."""

    def expected(self, now_s: float, start_s: float) -> Expected:
        """Return a start with its interval."""
        wait_s = start_s - now_s
        earliest_s = now_s + self.low * wait_s - self.margin_s
        latest_s = now_s + self.high * wait_s + self.margin_s
        return Expected(start_s, max(now_s, earliest_s), latest_s)


class ForecastErrors:
    """The last waits as factors of what was expected: the next intervals follow from them."""

    def __init__(self) -> None:
        self._factors = deque[float](maxlen=_MEMORY)

    def learn(self, submitted_s: float, expected_s: float, started_s: float) -> None:
        """Note a start, and when it was expected at the submission."""
        self._factors.append((started_s - submitted_s) / max(1.0, expected_s - submitted_s))

    def forecast(self) -> Forecast:
        """Return the factors between which 90 % of the waits were."""
        if len(self._factors) < _LEAST:
            return Forecast()
        factors = sorted(self._factors)
        outside = int(len(factors) * _OUTSIDE)
        return Forecast(factors[outside], factors[-1 - outside])


def explained(filling: Filling, forecast: Forecast) -> Iterator[Wait]:
    """Yield a ``Wait`` for every training that stays in line."""
    pool, waiting = filling.pool, filling.waiting
    lacks = _Lacks(pool)
    places = enumerate(zip(waiting, starts_s(pool, waiting), strict=True), 1)
    for place, (job, start_s) in places:
        reason, sooner = lacks.ever(job) or lacks.now(job, waiting[0])
        expected = None if start_s == NEVER_S else forecast.expected(pool.now_s, start_s)
        yield Wait(job.name, place, reason, expected, sooner)


def starts_s(pool: Pool, waiting: Iterable[Job]) -> Iterator[float]:
    """Yield when each waiting job starts if jobs start in line and run as predicted."""
    now_s, free, groups = pool.now_s, pool.free.copy(), pool.groups
    ends = [(seat.ends_s, seat.kind, seat.size) for seat in pool.seats]
    heapify(ends)
    most = pool.systems if pool.groups or pool.seats else Counter[str]()
    for job in waiting:
        least, kind = job.min_num_csx, job.kind_with_most(most)
        if most[kind] < least:
            yield NEVER_S
            continue
        while not groups or free[kind := job.kind_with_most(free)] < least:
            ends_s, ended_kind, ended_size = heappop(ends)
            now_s = ends_s if ends_s > now_s else now_s
            free[ended_kind] += ended_size
            groups += 1
        size = max(least, min(job.num_csx, free[kind] // 2))
        free[kind] -= size
        groups -= 1
        heappush(ends, (now_s + job.time_s(kind, size, now_s), kind, size))
        yield now_s


class _Lacks:
    """What a pool is short of, in words."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        names = [seat.job.name for seat in sorted(pool.seats, key=lambda seat: seat.ends_s)]
        self._names = ", ".join(names[:_MOST_NAMES]) + (", ..." if names[_MOST_NAMES:] else "")
        self._first_end = f"the end of {names[0]}" if names else ""
        reason = f"all MemoryX groups are in use ({len(names)}): {self._names}"
        self._no_group = reason, (self._first_end,)

    def ever(self, job: Job) -> tuple[str, tuple[str, ...]] | None:
        """Return what a job lacks in the empty session, too, and what would help; else None."""
        most = self._pool.systems[job.kind_with_most(self._pool.systems)]
        if most >= job.min_num_csx:
            return None
        kinds = " or ".join(job.run_times)
        reason = f"{job.min_num_csx} {kinds} requested at least, the session has {most}"
        return reason, (f"min_num_csx of at most {most}",) if most else ()

    def now(self, job: Job, first: Job) -> tuple[str, tuple[str, ...]]:
        """Return why a job does not start now, and what would start it sooner."""
        if not self._pool.groups:
            return self._no_group
        kind = job.kind_with_most(self._pool.free)
        free = self._pool.free[kind]
        if free < job.min_num_csx:
            total = self._pool.systems[kind]
            reason = f"{job.min_num_csx} CSX requested, {free} of {total} are free: {self._names}"
            smaller = (f"min_num_csx of at most {free}",) if free else ()
            return reason, (*smaller, self._first_end)
        reason = f"{first.name} is ahead with priority P{first.priority // 100} ({first.priority})"
        return reason, ("a higher priority",)


def explained_compiles(
    now_s: float, session: Session, line: Sequence[Job], forecast: Forecast
) -> Iterator[Wait]:
    """Yield a ``Wait`` for every compile job that has no slot after the decision."""
    ends = sorted(job.time_s(_any_kind(job), job.num_csx, now_s) for job in line if job.runs)
    waiting = [job for job in line if not job.runs]
    starting = max(0, session.compile_slots - len(ends))
    ends += [job.time_s(_any_kind(job), job.num_csx, now_s) for job in waiting[:starting]]
    heapify(ends)
    names = ", ".join(job.name for job in line if job.runs)
    reason = f"all compile slots are in use ({session.compile_slots}): {names}"
    for place, job in enumerate(waiting[starting:]):
        if not ends:
            yield Wait(job.name, place + 1, "the session has no compile slots", None)
            continue
        start_s = heappop(ends)
        heappush(ends, start_s + job.time_s(_any_kind(job), job.num_csx, now_s))
        yield Wait(job.name, place + 1, reason, forecast.expected(now_s, now_s + start_s))


def _any_kind(job: Job) -> str:
    return next(iter(job.run_times))
