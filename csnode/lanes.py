"""Lanes of a CS node, the segments that they run, and what these leave.

A lane is a thread that computes micro-batches on one core, side by side with the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, TypeVar

import torch

from csnode.devices.device import Departure, Mark
from csnode.gradients import GradientSum
from csnode.stash import Left
from waferstream.core.program.schedule import SegmentStep
from waferstream.core.roles.activities import Interval, Place

Result = TypeVar("Result")


class Lanes:
    """``count`` threads, each of which computes on one core; a single lane is the caller's thread.

    The threads end with the object.
    """

    def __init__(self, count: int, name: str) -> None:
        self.count = count
        self._threads = (
            ThreadPoolExecutor(count, name, torch.set_num_threads, (1,)) if count > 1 else None
        )

    def submit(
        self, work: Callable[[], Result], after: Future[Any] | None = None
    ) -> Future[Result]:
        """Let a lane do some work, behind all that could begin before; a single lane does it now.

        Args:
            work: What to do.
            after: Work that this one follows. No lane waits for it: the work is in line for a lane
                from the moment when that has ended, in whatever way.
        """
        result: Future[Result] = Future()
        do = partial(_do, work, result)
        if self._threads is None:
            do()
        elif after is None:
            self._threads.submit(do)
        else:
            line_up = partial(self._threads.submit, do)
            after.add_done_callback(lambda _: line_up())
        return result


def _do(work: Callable[[], Result], result: Future[Result]) -> None:
    """Do some work, unless its result was cancelled."""
    if not result.set_running_or_notify_cancel():
        return
    try:
        result.set_result(work())
    except BaseException as error:  # of a thread, nobody else would hear of it
        result.set_exception(error)
        if not isinstance(error, Exception):  # Ctrl-C, in the thread of the caller
            raise


@dataclass(frozen=True)
class Executed:
    """What one segment left: when each micro-batch was computed, and the gradients to send.

    ``gradients`` are given by the node that owns the micro-batches: this one, and others where it
    computes for a vote (csnode.results). ``not_finite`` names the first value of each micro-batch
    that is not finite, if that was asked. ``held_bytes`` are those of the largest micro-batch on
    the wafer, once its values are stashed; 0 where nothing is. ``left`` goes to activation servers.
    """

    intervals: list[Interval]
    gradients: dict[int, list[GradientSum]]
    not_finite: list[str | None]
    held_bytes: int
    left: list[Left]


class Passed(NamedTuple):
    """What one segment left of one micro-batch, and when its kernels ran."""

    micro_batch: int
    place: Place
    start: Mark
    stop: Mark
    not_finite: str | None
    held_bytes: int
    left: tuple[Left, ...]

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


@contextmanager
def single_threaded() -> Iterator[None]:
    """Let torch compute in this thread alone: the number of threads can change bits.

    Switching takes a microsecond.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
