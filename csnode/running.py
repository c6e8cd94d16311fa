"""Segments that the lanes of a CS node run, and what they leave."""

from __future__ import annotations

from concurrent.futures import Future, wait
from dataclasses import dataclass
from typing import NamedTuple

from csnode.gradients import GradientSum, GradientSums
from wsc.core.activities import Interval
from wsc.core.schedule import SegmentStep


@dataclass(frozen=True)
class Executed:
    """What one segment left: when each micro-batch was computed, and the gradients to send.

    ``gradients`` are given by the node that owns the micro-batches: this one, and others where it
    computes for a vote (csnode.voting). ``not_finite`` names the first value of each micro-batch
    that is not finite, if that was asked. ``held_bytes`` are those of the largest micro-batch on
    the wafer, once its values are stashed; 0 where nothing is.
    """

    intervals: list[Interval]
    gradients: dict[int, list[GradientSum]]
    not_finite: list[str | None]
    held_bytes: int


class Passed(NamedTuple):
    """What one segment left of one micro-batch."""

    interval: Interval
    not_finite: str | None
    held_bytes: int


@dataclass(frozen=True)
class Running:
    """A segment that the lanes run: its micro-batches, in order, and where their sums gather."""

    segment_step: SegmentStep
    passed: list[Future[Passed]]
    sums: dict[int, GradientSums]

    @property
    def is_done(self) -> bool:
        """Whether every micro-batch has passed, or failed."""
        return all(each.done() for each in self.passed)

    def wait(self) -> None:
        """Return when every micro-batch has passed, failed or never begins."""
        wait(self.passed)

    def cancel(self) -> None:
        """Let no further micro-batch begin."""
        for each in self.passed:
            each.cancel()
