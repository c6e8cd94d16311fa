"""The record of the emulated machine: what it did when, for traces.

Timelines and wires add an activity with its times; the place in the run (step, round, layer, phase)
is set once by whoever executes the schedule. A record has a limit: a run may have any number of
steps. A full record takes nothing more, and says where it ended.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import NamedTuple

from waferstream.core.roles.activities import NOWHERE, Place

DEFAULT_LIMIT = 500_000
"""Most activities of each clock: about 250 MB of memory and 300 MB of file."""


class Occupancy(NamedTuple):
    """Activity of one timeline in emulated time."""

    timeline: str
    activity: str
    start_ps: int
    end_ps: int
    place: Place = NOWHERE
    num_bytes: int = 0


class SegmentFacts(NamedTuple):
    """Facts about a segment in a trace: layer, phase, and the SRAM of a system that runs it."""

    layer: str
    phase: str
    activation_bytes: int
    buffer_bytes: int


_IDLE = SegmentFacts("", "", 0, 0)


class SramUse(NamedTuple):
    """Bytes in the SRAM of a busy system from a moment on."""

    at_ps: int
    activation_bytes: int
    buffer_bytes: int


class Record:
    """Activities of the emulated machine.

    Args:
        limit: The most activities that are kept.
    """

    def __init__(self, limit: int = DEFAULT_LIMIT) -> None:
        self.limit = limit
        self.occupancies: list[Occupancy] = []
        self.sram: list[SramUse] = []
        self.first_missing: Place | None = None
        """The place of the first activity that is missing, if one is."""
        self._place, self._facts = NOWHERE, _IDLE
        self._segments: dict[str, Sequence[SegmentFacts]] = {}

    def __deepcopy__(self, _: dict[int, object]) -> Record:
        """Return a copy that later activities do not change: those that it has never do."""
        copied = copy(self)
        copied.occupancies, copied.sram = list(self.occupancies), list(self.sram)
        return copied

    @property
    def is_full(self) -> bool:
        """Whether nothing more is kept."""
        return len(self.occupancies) >= self.limit

    def clear(self) -> None:
        """Forget all activities."""
        self.occupancies.clear()
        self.sram.clear()
        self.first_missing = None

    def describe(self, mode: str, segments: Sequence[SegmentFacts]) -> None:
        """Set the segments of the program of a mode."""
        self._segments[mode] = segments

    def enter_round(self, mode: str, step: int, index: int = -1) -> None:
        """Let further activities belong to a round, or to a whole step, and to no layer of it."""
        self._place, self._facts = Place(mode, step, index), _IDLE

    def enter_segment(self, index: int) -> None:
        """Let further activities belong to a segment of the round."""
        self._facts = self._segments[self._place.mode][index]
        self._place = self._place._replace(layer=self._facts.layer, phase=self._facts.phase)

    def leave_segment(self) -> None:
        """Let further activities belong to the round as a whole."""
        self._place, self._facts = self._place._replace(layer="", phase=""), _IDLE

    def add(
        self, timeline: str, activity: str, start_ps: int, end_ps: int, num_bytes: int = 0
    ) -> None:
        """Keep an activity at the current place, unless it takes no time or the record is full."""
        if start_ps == end_ps:
            return
        if self.is_full:
            self.first_missing = self.first_missing or self._place
            return
        occupancy = Occupancy(timeline, activity, start_ps, end_ps, self._place, num_bytes)
        self.occupancies.append(occupancy)

    def add_sram(self, at_ps: int) -> None:
        """Note what the current segment holds in SRAM from a moment on; nothing without one."""
        if not self.is_full:
            facts = self._facts
            self.sram.append(SramUse(at_ps, facts.activation_bytes, facts.buffer_bytes))
