"""The systems and groups of a session while a decision is made: counts first, names at the end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from math import inf

from waferstream.management.schedule.actions import Action, Pause, Resize, Start
from waferstream.management.schedule.state import NEVER_S, Job, Session


@dataclass(slots=True)
class Seat:
    """A job that runs, or will when the decision is carried out."""

    job: Job
    kind: str
    size: int
    ends_s: float


@dataclass(frozen=True, slots=True)
class Opening:
    """When a job that does not fit now will, as running jobs end; and what it leaves to others."""

    at_s: float
    kind: str = ""
    spare: int = 0
    spare_groups: int = 0


class Pool:
    """Free systems by kind, free groups, and seats."""

    def __init__(
        self, now_s: float, session: Session, running: Sequence[Job], held: Set[str]
    ) -> None:
        """Open the pool of a session; ``held`` has the systems of all jobs, whatever session."""
        self.now_s = now_s
        self._names = {system.name: system.kind for system in session.systems}
        self.running = _settled(running, {*self._names, *session.groups})
        self._held_elsewhere = {*held}.difference(*(job.holds for job in running))
        self._group_names = session.groups
        self.systems = Counter(self._names.values())
        self.free = Counter(kind for name, kind in self._names.items() if name not in held)
        self.seats = [self._seat(job, self._kind_of(job), len(job.holds)) for job in self.running]
        self.groups = len({*session.groups}.difference(job.group for job in running))

    def kind_for(self, job: Job, size: int) -> str | None:
        """Return the kind with most free systems on which a job fits, or None."""
        if self.groups < 1:
            return None
        kind = job.kind_with_most(self.free)
        return kind if self.free[kind] >= size else None

    def start(self, job: Job, kind: str, size: int) -> None:
        """Give a waiting job a group and systems."""
        self.free[kind] -= size
        self.groups -= 1
        self.seats.append(self._seat(job, kind, size))

    def resize(self, seat: Seat, size: int) -> None:
        """Give a job more systems, or take some."""
        self.free[seat.kind] -= size - seat.size
        seat.size = size
        seat.ends_s = self.ends_s(seat, size)

    def ends_s(self, seat: Seat, size: int) -> float:
        """Return when a job would end on another number of systems."""
        return self.now_s + seat.job.time_s(seat.kind, size, self.now_s)

    def pause(self, seat: Seat) -> None:
        """Take all systems and the group of a job."""
        self.free[seat.kind] += seat.size
        self.groups += 1
        self.seats.remove(seat)

    def opening(self, job: Job) -> Opening:
        """Return when a job fits on its smallest number of systems if others end as predicted."""
        free, groups = self.free.copy(), self.groups
        for seat in sorted(self.seats, key=lambda seat: seat.ends_s):
            free[seat.kind] += seat.size
            groups += 1
            kind = job.kind_with_most(free)
            if groups > 0 and free[kind] >= job.min_num_csx:
                return Opening(seat.ends_s, kind, free[kind] - job.min_num_csx, groups - 1)
        return Opening(NEVER_S)

    def actions(self, reasons: Mapping[str, str]) -> Iterator[Action]:
        """Yield what leads from the state before the decision to the seats after it.

        What takes systems from jobs comes first. ``reasons`` are those of pauses, by job.
        """
        seats = {seat.job.name: seat for seat in self.seats}
        kept = {
            job.name: self._kept(job, seats[job.name]) for job in self.running if job.name in seats
        }
        for job in self.running:
            if job.name not in seats:
                yield Pause(job.name, reasons[job.name])
            elif len(kept[job.name]) == seats[job.name].size < len(job.holds):
                yield Resize(job.name, kept[job.name])
        names = self._free_names(kept)
        taken = {job.group for job in self.running if job.name in seats}
        groups = (group for group in self._group_names if group not in taken)
        for seat in self.seats:
            had = kept.get(seat.job.name, ())
            more = tuple(next(names[seat.kind]) for _ in range(seat.size - len(had)))
            if not seat.job.runs:
                yield Start(seat.job.name, more, next(groups))
            elif more:
                yield Resize(seat.job.name, had + more)

    def _kept(self, job: Job, seat: Seat) -> tuple[str, ...]:
        """Return the systems that a running job keeps."""
        return job.holds[: seat.size] if seat.kind == self._kind_of(job) else ()

    def _free_names(self, kept: Mapping[str, tuple[str, ...]]) -> dict[str, Iterator[str]]:
        """Return the systems of each kind that no running job keeps."""
        taken = self._held_elsewhere.union(*kept.values())
        return {
            kind: iter(
                [name for name, of in self._names.items() if of == kind and name not in taken]
            )
            for kind in self.systems
        }

    def _kind_of(self, job: Job) -> str:
        """Return the kind of the systems that a job holds."""
        return next(
            (self._names[name] for name in job.holds if name in self._names),
            next(iter(job.run_times)),
        )

    def _seat(self, job: Job, kind: str, size: int) -> Seat:
        return Seat(job, kind, size, self.now_s + job.time_s(kind, size, self.now_s))


def _settled(running: Sequence[Job], names: Set[str]) -> list[Job]:
    """Return running jobs, those without breath that hold what they could not give to others.

    That is a node which is not, or not any more, among the names of the session, as it is drained,
    and one that another job has not left yet.
    """
    holders = Counter(name for job in running for name in (*job.holds, job.group))
    own = {name for name in names if holders[name] == 1}
    return [
        job if own.issuperset((*job.holds, job.group)) else replace(job, resize_s=inf)
        for job in running
    ]
