"""Recompute: trade activations kept between forward and backward pass for running layers again.

The *internals* of a forward segment are what it makes for the backward pass of its own layer alone.
A segment that is recomputed keeps none of them. Its inputs live on instead, and the first backward
segment that reads an internal runs the forward segment's ops again before its own (Chen et al.
2016, arXiv:1604.06174, section 4, with the program's layers as segments):

    kept         forward 3 ---- internals of 3 -------------------------> backward 3
    recomputed   forward 3 ---- inputs of 3 ---------> forward 3 again, > backward 3

``recompute`` changes a program, given the segments. ``capacities`` finds out how many segments to
choose, without making any of these programs: every footprint is a line over the samples (fixed
bytes, bytes for each sample), and recomputing one more segment moves a few of them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from waferstream.core.program.program import Program
from waferstream.core.program.segment import Footprint, Segment, Stash
from waferstream.machine.hardware import WaferSpec
from waferstream.machine.sram.space import (
    Buffers,
    Life,
    data_bytes,
    is_internal,
    lives,
    moments_of,
    output_head,
    working_sets,
)

Lines = npt.NDArray[np.int64]
"""Footprints of all segments, [segments, 2]: fixed bytes, and bytes for each sample."""


def internals_of(program: Program, stash: Iterable[Life]) -> dict[int, list[Life]]:
    """Return the internals of each forward segment that has any."""
    found: dict[int, list[Life]] = {}
    for life in stash:
        if is_internal(life, program):
            found.setdefault(life.producer, []).append(life)
    return found


def recomputable(program: Program) -> tuple[int, ...]:
    """Return the forward segments whose memory recompute saves, in order.

    They have internals, and something runs before the backward pass reads these. The output head
    is left out: it keeps the internals of a single sample anyway.
    """
    return saving(program, internals_of(program, lives(program)))


def saving(program: Program, internals: Mapping[int, Sequence[Life]]) -> tuple[int, ...]:
    """Return the same as ``recomputable`` for a program whose internals are known."""
    head = output_head(program)
    return tuple(
        index
        for index in sorted(internals)
        if index not in head and first_user(internals[index]) > index + 1
    )


def first_user(internals: Iterable[Life]) -> int:
    """Return the backward segment that makes these internals again: the first that reads any."""
    return min(life.readers[0] for life in internals)


def recompute(
    program: Program,
    chosen: Collection[int],
    known: Mapping[int, Sequence[Life]] | None = None,
) -> Program:
    """Return the program that runs the forward segments ``chosen`` again in the backward pass.

    The result is for timing and SRAM plans: matching kernels come from the compiler's pass
    ``rematerialize``. ``known`` are the program's internals, if they were found before. Raises
    ValueError for a segment that has no internals.
    """
    internals = internals_of(program, lives(program)) if known is None else known
    segments, working = list(program.segments), working_sets(program)
    for index in chosen:
        found = internals.get(index)
        if not found:
            raise ValueError(f"segment {index} must have internals to be recomputed")
        segments[index] = replace(segments[index], working=working[index])
        user = first_user(found)
        onward = [life.stash for life in found if life.readers[-1] > user]
        segments[user] = _with_rerun(segments[user], segments[index], found, onward)
        segments[index] = _without(segments[index], [life.stash for life in found])
    return replace(
        program,
        digest=f"{program.digest}-recompute-{'-'.join(map(str, sorted(chosen)))}",
        segments=_with_drops(program, segments),
    )


def _without(forward: Segment, pieces: Sequence[Stash]) -> Segment:
    missing = _names(pieces)
    stash = tuple(piece for piece in forward.stash if missing.isdisjoint(piece.values))
    return replace(
        forward,
        outputs=tuple(name for name in forward.outputs if name not in missing),
        stash=stash,
    )


def _with_rerun(
    backward: Segment, forward: Segment, internals: Sequence[Life], onward: Sequence[Stash]
) -> Segment:
    """Return the backward segment with the forward segment's ops that it needs before its own."""
    made = _names(life.stash for life in internals)
    inputs = (*(name for name in backward.inputs if name not in made), *forward.inputs)
    held = sum((life.footprint for life in internals), backward.working)
    kept = _names(onward)
    names = [name for name in forward.outputs if name in kept]
    return replace(
        backward,
        weights=tuple(dict.fromkeys((*backward.weights, *forward.weights))),
        inputs=tuple(dict.fromkeys(inputs)),
        outputs=(*backward.outputs, *names),
        work=(*(work for work in forward.work if work.reruns), *backward.work),
        stash=(*backward.stash, *onward),
        working=forward.working.covering(held),
    )


def _with_drops(program: Program, segments: Iterable[Segment]) -> tuple[Segment, ...]:
    """Return the segments with ``drops`` at the last read of each value."""
    dropped = {name for segment in program.segments for name in segment.drops}
    settled = []
    last_read_later: set[str] = set()
    for segment in reversed(list(segments)):
        drops = [n for n in segment.inputs if n in dropped and n not in last_read_later]
        last_read_later.update(segment.inputs)
        settled.append(replace(segment, drops=tuple(drops)))
    return tuple(reversed(settled))


def _names(pieces: Iterable[Stash]) -> set[str]:
    return {name for piece in pieces for name in piece.values}


def capacities(program: Program, wafer: WaferSpec) -> tuple[int, ...]:
    """Return the samples that fit with none, one, two ... of ``recomputable`` recomputed.

    0 where not even one sample fits. Raises ConfigError for a wafer without SRAM for data.
    """
    sram = _Capacity(program, wafer)
    found = [sram.samples()]
    for index in saving(program, sram.internals):
        sram.recompute(index)
        found.append(sram.samples())
    return tuple(found)


class _Capacity:
    """Stash, working set and buffers at each segment, as more and more segments are recomputed.

    ``recompute`` does to these lines what the function of that name does to a program:

        stash      after the segment until the backward pass: minus its internals;
                   between the old and the new last reader of an input: plus that input
        working    of the backward segment: at least the forward segment's, and plus the internals
        buffers    of the backward segment: for the forward segment's weights, too
    """

    def __init__(self, program: Program, wafer: WaferSpec) -> None:
        stash = tuple(lives(program))
        found = moments_of(program, stash)
        self.internals = internals_of(program, stash)
        self._segments = program.segments
        self._data_bytes = data_bytes(wafer)
        self._stash = _lines(moment.stash for moment in found)
        self._working = _lines(moment.working for moment in found)
        self._buffers = Buffers(program, wafer)
        self._lives = {name: life for life in stash for name in life.stash.values}
        self._last_reader = {life.stash.values: life.readers[-1] for life in stash}

    def samples(self) -> int:
        """Return the samples that fit at every segment."""
        fixed, sample = (self._stash + self._working).T
        left = np.maximum(0, self._data_bytes - np.array(self._buffers.num_bytes) - fixed)
        return int((left // np.maximum(1, sample)).min())

    def recompute(self, index: int) -> None:
        """Keep the inputs of a forward segment until it runs again, instead of its internals."""
        forward, internals = self._segments[index], self.internals[index]
        user = first_user(internals)
        made = _lines(life.footprint for life in internals).sum(axis=0)
        self._stash[index + 1 : user + 1] -= made
        self._working[user] = np.maximum(self._working[index], self._working[user] + made)
        for life in filter(None, map(self._lives.get, forward.inputs)):
            self._keep(life, user)
        self._buffers.stream_again(forward.weights, user)

    def _keep(self, life: Life, user: int) -> None:
        """Keep a piece of the stash until ``user`` has read it."""
        piece = life.stash.values
        last_reader = self._last_reader[piece]
        if last_reader < user:
            self._stash[last_reader + 1 : user + 1] += _line(life.footprint)
            self._last_reader[piece] = user


def _lines(footprints: Iterable[Footprint]) -> Lines:
    return np.array([_line(footprint) for footprint in footprints], dtype=np.int64)


def _line(footprint: Footprint) -> tuple[int, int]:
    return footprint.fixed_bytes, footprint.sample_bytes
