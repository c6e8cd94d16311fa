"""Recompute: trade activations kept between forward and backward pass for running layers again.

What a forward segment makes for the backward pass of its own layer alone are its *internals*. A
segment that is recomputed leaves none of them. Its inputs live on instead, and the first backward
segment that reads an internal runs the forward segment's ops again before its own (Chen et al.
2016, arXiv:1604.06174, section 4, with the program's layers as segments).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from timing.sram.liveness import Life, lives
from timing.sram.turn import turn_of
from wsc.core.program import Program, Segment, Stash


def internals_of(program: Program, stash: Iterable[Life]) -> dict[int, list[Life]]:
    """What each forward segment makes for the backward pass of its own layer alone."""
    found: dict[int, list[Life]] = {}
    for life in stash:
        if _is_internal(life, program):
            found.setdefault(life.producer, []).append(life)
    return found


def recomputable(program: Program) -> tuple[int, ...]:
    """The forward segments that recompute saves memory of, in order.

    They have internals, and something runs before the backward pass reads these; in the turn of the
    step there is a single sample of them anyway.
    """
    return saving(program, internals_of(program, lives(program)))


def saving(program: Program, internals: Mapping[int, Sequence[Life]]) -> tuple[int, ...]:
    """The same for a program whose internals are known."""
    turn = turn_of(program)
    return tuple(
        index
        for index in sorted(internals)
        if index not in turn and first_user(internals[index]) > index + 1
    )


def first_user(internals: Iterable[Life]) -> int:
    """The backward segment that runs again what makes these."""
    return min(life.readers[0] for life in internals)


def recompute(program: Program, chosen: Collection[int]) -> Program:
    """The program in which the forward segments ``chosen`` are run again in the backward pass.

    For the clock and the memory model: kernels that match come from the compiler's pass of the
    same name. Raises ValueError for a segment that has no internals.
    """
    internals, segments = internals_of(program, lives(program)), list(program.segments)
    for index in chosen:
        found = internals.get(index)
        if not found:
            raise ValueError(f"segment {index} keeps nothing that could be recomputed")
        user = first_user(found)
        pieces = [life.stash for life in found]
        onward = [life.stash for life in found if life.readers[-1] > user]
        segments[user] = _running_again(segments[user], segments[index], pieces, onward)
        segments[index] = _without(segments[index], pieces)
    return replace(
        program,
        digest=f"{program.digest}-recompute-{'-'.join(map(str, sorted(chosen)))}",
        segments=_dropping_after_last_read(program, segments),
    )


def _is_internal(life: Life, program: Program) -> bool:
    producer = program.segments[life.producer]
    if producer.phase != "forward":
        return False
    readers = [program.segments[index] for index in life.readers]
    return all(r.phase == "backward" and r.layer == producer.layer for r in readers)


def _without(forward: Segment, pieces: Sequence[Stash]) -> Segment:
    gone = _names(pieces)
    stash = tuple(piece for piece in forward.stash if gone.isdisjoint(piece.values))
    return replace(
        forward,
        outputs=tuple(name for name in forward.outputs if name not in gone),
        stash=stash,
    )


def _running_again(
    backward: Segment, forward: Segment, pieces: Sequence[Stash], onward: Sequence[Stash]
) -> Segment:
    """The backward segment with those ops of the forward segment before its own that it needs."""
    made = _names(pieces)
    inputs = (*(name for name in backward.inputs if name not in made), *forward.inputs)
    held = sum((piece.footprint for piece in pieces), backward.working)
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


def _dropping_after_last_read(program: Program, segments: Iterable[Segment]) -> tuple[Segment, ...]:
    """The segments with ``drops`` where each value is now read last."""
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
