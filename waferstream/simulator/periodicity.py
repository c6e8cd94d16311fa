"""Detect that the state of a machine repeats, so that equal work is executed once and multiplied.

Equal layers of a round, equal rounds of a step and equal steps of a run are all repetitions of the
same work. The effect of a repetition depends only on the state that it finds: the times of all
resources, relative to now (timing.timeline.state_of). As soon as a state comes back, all that
follows comes back as well, to the picosecond:

    repetition        0   1   2   3   4   5   6 ...
    state it leaves   a   b   c   d   c  (d) (c)        period 2, known after repetition 4

Layers and rounds are only multiplied with a period of one repetition; steps with any period.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, NamedTuple, Protocol, TypeVar

from waferstream.machine.attribution import Attribution
from waferstream.machine.timeline import State


class HasState(Protocol):
    """The record of a repetition."""

    @property
    def state(self) -> State:
        """State that the repetition left."""


Record = TypeVar("Record", bound=HasState)


class Repetitions(NamedTuple, Generic[Record]):
    """Records of the repetitions that were executed; ``period`` is 0 if no state came back."""

    executed: tuple[Record, ...]
    period: int


def run_until_periodic(
    advance: Callable[[int], Record],
    count: int,
    *,
    longest: int = 1,
    may_repeat: Callable[[int], bool] = lambda _: True,
) -> Repetitions[Record]:
    """Execute repetitions until a state comes back, at most ``count`` of them.

    Args:
        advance: executes one repetition, given its index, and returns its record.
        count: repetitions that there are.
        longest: the longest period, in repetitions, to look for.
        may_repeat: whether all later repetitions do what this one, given by its index, did; asked
            only when its state has come back.
    """
    executed: list[Record] = []
    for index in range(count):
        record = advance(index)
        for period, earlier in enumerate(reversed(executed[-longest:]), 1):
            if earlier.state == record.state and may_repeat(index):
                return Repetitions((*executed, record), period)
        executed.append(record)
    return Repetitions(tuple(executed), 0)


class Snapshot(NamedTuple):
    """A machine at one moment, and where its time has gone until then."""

    now_ps: int
    state: State
    spent: Attribution


class Passes(NamedTuple):
    """The last parts of a round, in ps: its backward pass, and what follows the last kernel."""

    backward_ps: int = 0
    update_ps: int = 0


class Effect(NamedTuple):
    """What a repetition does: the time it takes, where this time goes, the state it leaves.

    ``passes`` are those of a round.
    """

    duration_ps: int
    attribution: Attribution
    state: State
    passes: Passes = Passes()

    @classmethod
    def between(cls, before: Snapshot, after: Snapshot) -> Effect:
        """Return the effect of what was executed between two snapshots."""
        return cls(after.now_ps - before.now_ps, after.spent.since(before.spent), after.state)

    def times(self, count: int) -> Effect:
        """Return the effect of ``count`` repetitions in a row, each of which has this effect."""
        return Effect(count * self.duration_ps, self.attribution.times(count), self.state)
