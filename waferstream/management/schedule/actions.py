"""What a decision says to do."""

from __future__ import annotations

from typing import NamedTuple


class Expected(NamedTuple):
    """When something is expected, and between which times with 90 %."""

    start_s: float
    earliest_s: float
    latest_s: float


class Start(NamedTuple):
    """Start or resume a job.

    It may be given systems that a ``Resize`` or ``Pause`` of the same decision takes from another
    job: it holds them from now on, and is launched when they are free.
    """

    job: str
    systems: tuple[str, ...]
    group: str
    """The MemoryX group; of a compile job, the name of its slot."""


class Resize(NamedTuple):
    """Stop a job between two steps, and go on with other systems; the group stays."""

    job: str
    systems: tuple[str, ...]


class Pause(NamedTuple):
    """Stop a job between two steps; it waits again, of which a ``Wait`` behind tells more."""

    job: str
    reason: str


class Wait(NamedTuple):
    """A job keeps waiting."""

    job: str
    place: int
    """In the line of its session, from 1."""
    reason: str
    expected: Expected | None
    """When it is expected to start; None: nothing ends of itself that it waits for."""
    sooner: tuple[str, ...] = ()
    """What would start it sooner."""


Action = Start | Resize | Pause | Wait
