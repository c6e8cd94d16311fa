"""What lies in the SRAM of a wafer at each moment of a step, from the program alone.

A segment's stash lives from the segment that makes it to the last one that reads it. A forward
segment that is *recomputed* leaves no internals, that is, nothing that the backward pass of its
layer alone will read. Its inputs live on instead, and the first backward segment that reads an
internal has the forward segment run again before (Chen et al. 2016, arXiv:1604.06174, section 4,
with layers as the segments).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Literal

from wsc.core.program import Footprint, Program, Stash

Activity = Literal["forward", "backward", "recompute"]


@dataclass(frozen=True)
class Moment:
    """The wafer while it runs a segment: ``stash`` lies there, ``working`` is what it makes."""

    segment: int
    activity: Activity
    stash: Footprint
    working: Footprint

    @property
    def footprint(self) -> Footprint:
        """All activations."""
        return self.stash + self.working


@dataclass(frozen=True)
class Life:
    """Segments ``first`` to ``last`` find a piece of stash on the wafer.

    It is *internal* if the backward pass of the layer that made it is all that reads it.
    """

    stash: Stash
    producer: int
    is_internal: bool
    first_read: int
    first: int
    last: int


class Liveness:
    """The live ranges of a program whose forward segments ``recomputed`` leave no internals.

    ``recomputable`` are the forward segments that have internals; ``reruns`` says for each
    recomputed one before which backward segment it runs again. Raises ValueError for a recomputed
    segment without internals.
    """

    def __init__(self, program: Program, recomputed: Collection[int] = ()) -> None:
        plain = tuple(_plain_lives(program))
        internals = [life for life in plain if life.is_internal]
        self.recomputable = frozenset(life.producer for life in internals)
        if vain := set(recomputed) - self.recomputable:
            raise ValueError(f"segments {sorted(vain)} keep nothing that could be recomputed")
        self.reruns = {
            index: min(life.first_read for life in internals if life.producer == index)
            for index in sorted(recomputed)
        }
        self.lives = tuple(_lives_with_reruns(program, plain, self.reruns))
        self._program = program

    def moments(self) -> Iterator[Moment]:
        """Every run of a segment for one micro-batch, in order."""
        segments = self._program.segments
        change = [Footprint()] * (len(segments) + 1)
        internals: dict[int, Footprint] = {}
        for life in self.lives:
            footprint = life.stash.footprint
            change[life.first] += footprint
            change[life.last + 1] -= footprint
            if life.is_internal:
                internals[life.producer] = internals.get(life.producer, Footprint()) + footprint
        for segment, stash in zip(segments, accumulate(change), strict=False):
            again = [index for index, user in self.reruns.items() if user == segment.index]
            for place, index in enumerate(again):
                missing = sum((internals[other] for other in again[place:]), Footprint())
                yield Moment(index, "recompute", stash - missing, segments[index].working)
            yield Moment(segment.index, segment.phase, stash, segment.working)


def _plain_lives(program: Program) -> Iterator[Life]:
    """Live ranges when nothing is recomputed."""
    readers: dict[str, list[int]] = {}
    for segment in program.segments:
        for name in segment.inputs:
            readers.setdefault(name, []).append(segment.index)
    for segment in program.segments:
        for stash in segment.stash:
            reads = [index for name in stash.values for index in readers.get(name, ())]
            if reads:
                users = {(program.segments[i].phase, program.segments[i].layer) for i in reads}
                yield Life(
                    stash=stash,
                    producer=segment.index,
                    is_internal=segment.phase == "forward"
                    and users == {("backward", segment.layer)},
                    first_read=min(reads),
                    first=segment.index + 1,
                    last=max(reads),
                )


def _lives_with_reruns(
    program: Program, plain: Sequence[Life], reruns: dict[int, int]
) -> Iterator[Life]:
    """Internals appear anew where their segment runs again; what it reads lives until then."""
    needed_until: dict[str, int] = {}
    for index, user in reruns.items():
        for name in program.segments[index].inputs:
            needed_until[name] = max(user, needed_until.get(name, 0))
    for life in plain:
        if life.is_internal and life.producer in reruns:
            yield replace(life, first=reruns[life.producer])
        else:
            needed = max(needed_until.get(name, 0) for name in life.stash.values)
            yield replace(life, last=max(life.last, needed))
