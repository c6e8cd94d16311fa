"""Segments that the lanes of a CS node run, and what they leave."""

from __future__ import annotations

from concurrent.futures import Future, wait
from dataclasses import dataclass
from typing import NamedTuple

from csnode.devices.device import Departure, Mark
from csnode.gradients import GradientSum
from waferstream.core.program.schedule import SegmentStep
from waferstream.core.roles.activities import Interval, Place


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
    """What one segment left of one micro-batch, and when its kernels ran."""

    micro_batch: int
    place: Place
    start: Mark
    stop: Mark
    not_finite: str | None
    held_bytes: int

    def interval(self) -> Interval:
        """Return when the kernels ran, once they have."""
        detail = f"micro-batch {self.micro_batch}"
        return Interval("compute", self.start.time_ns, self.stop.time_ns, self.place, detail)


@dataclass(frozen=True)
class Running:
    """A segment that runs: its micro-batches on the lanes, in order, and its sums of gradients.

    ``weight_bytes`` are those of its payloads; a staged device has copied them, and they are not
    read any more.
    """

    segment_step: SegmentStep
    passed: list[Future[Passed]]
    departure: Departure
    weight_bytes: int
    has_copied_weights: bool

    @property
    def is_done(self) -> bool:
        """Whether every micro-batch has passed, or failed, and the device is done with them."""
        return all(each.done() for each in self.passed) and self.departure.is_done

    def wait(self) -> None:
        """Return when every micro-batch has passed, failed or never begins."""
        wait(self.passed)
        self.departure.wait()

    def cancel(self) -> None:
        """Let no further micro-batch begin."""
        for each in self.passed:
            each.cancel()
