"""Decide what starts, breathes and waits now."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from waferstream.management.schedule.actions import Action, Start
from waferstream.management.schedule.explain import Forecast, explained, explained_compiles
from waferstream.management.schedule.filling import Filling
from waferstream.management.schedule.line import place_in_line
from waferstream.management.schedule.pool import Pool
from waferstream.management.schedule.state import Inventory, Job, Rules, Session, Usage

_DEFAULT_RULES = Rules()
_NO_FORECAST = Forecast()


def decide(
    now_s: float,
    inventory: Inventory,
    jobs: Sequence[Job],
    usage: Usage,
    rules: Rules = _DEFAULT_RULES,
    forecast: Forecast | None = _NO_FORECAST,
) -> list[Action]:
    """Return what to do now; a job that is not named goes on as it is.

    Args:
        now_s: The time.
        inventory: What there is.
        jobs: All jobs that have not ended.
        usage: What users have had, until now.
        rules: What an administrator has set.
        forecast: How far earlier expected starts were off; None leaves out those who wait.
    """
    held = frozenset(name for job in jobs for name in job.holds)
    key = place_in_line(now_s, usage, rules)
    actions: list[Action] = []
    for session in inventory.sessions:
        running, waiting, compiles = _parted(job for job in jobs if job.session == session.name)
        pool = Pool(now_s, session, running, held)
        filling = Filling(pool, sorted(waiting, key=key), rules)
        filling.fill()
        compiles.sort(key=key)
        actions += pool.actions(filling.pauses)
        actions += _compile_starts(session, compiles)
        if forecast is not None:
            actions += explained(filling, forecast)
            actions += explained_compiles(now_s, session, compiles, forecast)
    return actions


def _parted(jobs: Iterable[Job]) -> tuple[list[Job], list[Job], list[Job]]:
    """Return trainings that run, trainings that wait, and compile jobs."""
    running, waiting, compiles = list[Job](), list[Job](), list[Job]()
    for job in jobs:
        (compiles if job.compiles else running if job.group else waiting).append(job)
    return running, waiting, compiles


def _compile_starts(session: Session, line: Sequence[Job]) -> Iterator[Start]:
    """Yield the compile jobs that get a free slot."""
    taken = {job.group for job in line if job.runs}
    slots = (f"compile-{number}" for number in range(session.compile_slots))
    free = [slot for slot in slots if slot not in taken]
    waiting = [job for job in line if not job.runs]
    yield from (Start(job.name, (), slot) for job, slot in zip(waiting, free, strict=False))
