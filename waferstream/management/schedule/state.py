"""What a decision is made from: systems by session, jobs, what users have had, and the rules.

All of it is frozen plain data. Names of systems and groups are those of the inventory; times are
seconds of one clock, wall-clock or emulated.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf, log
from types import MappingProxyType

NEVER_S = inf
"""The time of what does not come to pass."""

NEAR_LINEAR = 0.95
"""Exponent of the speed-up by systems where a prediction has a single size.

Assumed; published scaling of Andromeda from 1 to 16 systems is nearer to linear.
"""


_STEEPEST = 16.0
"""Greatest exponent that two sizes of a prediction may tell; a run can report anything."""


@dataclass(frozen=True, slots=True)
class System:
    """A CS system that jobs may be given."""

    name: str
    kind: str = "CS-3"


@dataclass(frozen=True, slots=True)
class Session:
    """A part of the inventory that an administrator has set aside; its jobs see nothing else."""

    name: str
    systems: tuple[System, ...]
    groups: tuple[str, ...]
    """MemoryX groups; a training takes one of them."""
    compile_slots: int = 1
    """Compile jobs that may run at a time, beside the trainings."""


@dataclass(frozen=True, slots=True)
class Inventory:
    """All sessions. A system that is drained is left out; a job that holds it may end on it."""

    sessions: tuple[Session, ...]


@dataclass(frozen=True, slots=True)
class RunTime:
    """Predicted seconds of a whole run by number of systems, at sizes that ascend."""

    points: tuple[tuple[int, float], ...]
    spread: float = 1.0
    """Factor by which a run may take longer, or shorter."""

    def seconds(self, num_csx: int) -> float:
        """Return the predicted seconds on so many systems, between points along a power law."""
        low, low_s = self.points[0]
        if num_csx == low:
            return low_s
        exponent = NEAR_LINEAR
        for high, high_s in self.points[1:]:
            exponent = log(low_s / high_s) / log(high / low)
            if num_csx <= high:
                break
            low, low_s = high, high_s
        exponent = max(-_STEEPEST, min(_STEEPEST, exponent))
        return low_s * float((low / num_csx) ** exponent)


@dataclass(frozen=True, slots=True)
class Job:
    """A job that has not ended, as the schedule sees it."""

    name: str
    user: str
    submitted_s: float
    run_times: Mapping[str, RunTime]
    """The run time by each kind of system that the job may run on."""
    num_csx: int = 1
    min_num_csx: int = 1
    session: str = ""
    priority: int = 299
    """P0 to P3 as a number from 0 to 399; smaller numbers come first."""
    compiles: bool = False
    """Whether the job takes a compile slot, and neither systems nor a group."""
    resize_s: float = 350.0
    """Time without progress that a resize or a pause costs; infinite: the job stays as it is."""
    left: float = 1.0
    """Share of the run that remains."""
    waits_since_s: float = 0.0
    """When the present wait began: the submission, or the last pause."""
    holds: tuple[str, ...] = ()
    """Systems that the job has been given, and ``group``; none of both while it waits."""
    group: str | None = None
    starts_s: float = 0.0
    """When the job was started, or resumed."""
    ready_s: float = 0.0
    """When the job makes progress on what it holds: later than now during a resize."""

    @property
    def runs(self) -> bool:
        """Whether the job holds a part of the inventory."""
        return self.group is not None

    def kind_with_most(self, systems: Mapping[str, int]) -> str:
        """Return the kind with most systems among those that the job may run on."""
        first, *others = self.run_times
        return max(self.run_times, key=systems.__getitem__) if others else first

    @property
    def breathes(self) -> bool:
        """Whether the job can be resized and paused now."""
        return self.resize_s < inf

    def time_s(self, kind: str, num_csx: int, now_s: float) -> float:
        """Return the predicted seconds until the job ends on so many systems from now on."""
        run_s = self.left * self.run_times[kind].seconds(num_csx)
        if num_csx == len(self.holds):
            return max(0.0, self.ready_s - now_s) + run_s
        return run_s + self.resize_s if self.left < 1.0 or self.holds else run_s


@dataclass(frozen=True, slots=True)
class Usage:
    """Seconds of systems that users have had, each decayed until ``at_s``."""

    at_s: float = 0.0
    system_s: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True)
class Rules:
    """What an administrator may set."""

    bound_s: float = 12 * 3600.0
    """A job that has waited so long is next, and nothing overtakes it."""
    quantum_s: float = 3600.0
    """A job runs at least so long before a job beyond the bound pauses it."""
    gain: float = 0.5
    """To make room must save the waiting job so many times what it costs those that run.

    Less than 1, since the jobs behind it gain as well.
    """
    growth_gain: float = 3.0
    """To grow must save a job so many times what a resize costs: a newcomer may shrink it again."""
    half_life_s: float = 24 * 3600.0
    """After so long, half of what a user has had is forgotten."""
