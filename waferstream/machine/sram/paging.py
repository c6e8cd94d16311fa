"""Paging: activations that wait for the backward pass on activation servers instead of the wafer.

A *page* is a piece of the stash that a forward segment reads last and that nothing reads again
until the backward pass. It leaves after its last forward reader and is back before its first
backward reader; in the segment during which it leaves or comes back, it still takes SRAM:

    segment        0        1        2        3    ...    8        9
                makes    reads    runs on  runs on      runs on  reads
    page          w        s      leaves     -      -   comes     s

Pages go in the order in which they are made: the first ones are away for longest.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from waferstream.core.program.program import Program
from waferstream.core.program.segment import Footprint
from waferstream.machine.hardware import ActivationSpec, MachineSpec, WaferSpec
from waferstream.machine.sram.space import Life, Moment, data_bytes, lives, moments, output_head


@dataclass(frozen=True)
class Page:
    """A piece of the stash that is away between two segments."""

    life: Life
    sent_after: int
    """Its last forward reader, or the segment that makes it."""
    needed_by: int
    """Its first backward reader."""

    @property
    def footprint(self) -> Footprint:
        """The bytes that are away."""
        return self.life.footprint


@dataclass(frozen=True)
class Paging:
    """The pages of a program on a machine, and how many samples fit with how many of them away.

    ``moments`` and ``buffers`` are those of the program with nothing away; ``pages`` are all pieces
    that can be, in the order in which they are made.
    """

    wafer: WaferSpec
    servers: ActivationSpec
    moments: tuple[Moment, ...]
    buffers: tuple[int, ...]
    pages: tuple[Page, ...]

    @classmethod
    def of(cls, program: Program, machine: MachineSpec, buffers: tuple[int, ...]) -> Paging:
        """Return the pages of a program; none on a machine without activation servers."""
        servers = machine.activations
        pages = tuple(_pages(program)) if servers.servers else ()
        return cls(machine.system, servers, moments(program), buffers, pages)

    @cached_property
    def capacities(self) -> tuple[int, ...]:
        """Samples that fit with no, one, two ... pages away; 0 where not even one does."""
        fixed = np.array([moment.footprint.fixed_bytes for moment in self.moments])
        sample = np.array([moment.footprint.sample_bytes for moment in self.moments])
        free = data_bytes(self.wafer) - np.array(self.buffers)
        found, away = [], Footprint()
        for page in (None, *self.pages):
            if page is not None:
                gone = slice(page.sent_after + 2, page.needed_by - 1)
                fixed[gone] -= page.footprint.fixed_bytes
                sample[gone] -= page.footprint.sample_bytes
                away += page.footprint
            room = int((np.maximum(0, free - fixed) // np.maximum(1, sample)).min())
            found.append(min(room, self._held(away)) if page is not None else room)
        return tuple(found)

    def _held(self, away: Footprint) -> int:
        """Return the samples of which the servers hold this much."""
        left = max(0, self.servers.total_bytes - away.fixed_bytes)
        return left // max(1, away.sample_bytes)

    @property
    def largest(self) -> int:
        """Most samples that fit, with as many pages away as that takes."""
        return max(self.capacities)

    def for_samples(self, samples: int) -> tuple[Page, ...]:
        """Return the fewest pages with which so many samples fit; all of them if nothing does."""
        fitting = (count for count, most in enumerate(self.capacities) if samples <= most)
        return self.pages[: next(fitting, len(self.pages))]


def without_pages(moments: tuple[Moment, ...], pages: tuple[Page, ...]) -> tuple[Moment, ...]:
    """Return what is on the wafer at each segment while these pages are away."""
    away = [Footprint()] * (len(moments) + 1)
    for page in pages:
        away[page.sent_after + 2] += page.footprint
        away[page.needed_by - 1] -= page.footprint
    found, gone = [], Footprint()
    for moment, change in zip(moments, away, strict=False):
        gone += change
        found.append(Moment(moment.segment, moment.stash - gone, moment.working))
    return tuple(found)


class PagedBytes(NamedTuple):
    """Activations that come back for a segment, and that leave after it, of one micro-batch."""

    fetched_bytes: int = 0
    sent_bytes: int = 0


NOTHING_PAGED = PagedBytes()


def paged_bytes(program: Program, pages: Iterable[Page]) -> tuple[PagedBytes, ...]:
    """Return the bytes of the pages that move at each segment of a program."""
    fetched, sent = ([0] * len(program.segments) for _ in range(2))
    for page in pages:
        num_bytes = page.footprint.of(program.micro_batch_size)
        sent[page.sent_after] += num_bytes
        fetched[page.needed_by] += num_bytes
    return tuple(map(PagedBytes, fetched, sent))


def _pages(program: Program) -> Iterator[Page]:
    """Yield the pieces that are away for at least one segment."""
    head = output_head(program)
    for life in lives(program):
        if life.producer not in head and (page := _page(program, life)) is not None:
            yield page


def _page(program: Program, life: Life) -> Page | None:
    if program.segments[life.producer].phase != "forward":
        return None
    phases = {index: program.segments[index].phase for index in life.readers}
    forward = [index for index, phase in phases.items() if phase == "forward"]
    backward = [index for index, phase in phases.items() if phase == "backward"]
    sent_after = max(forward, default=life.producer)
    if not backward or min(backward) - sent_after <= _LEAST_SEGMENTS:
        return None
    return Page(life, sent_after, min(backward))


_LEAST_SEGMENTS = 3
"""Segments from the last forward to the first backward reader: one to leave, one to come back."""
