"""Blocks: a segment that has no room runs on one part of a micro-batch after the other.

What later segments read, and what comes in, is there for the whole micro-batch; all else that the
segment makes is there for a block:

    samples        a block has some; nothing passes from one to another
    tokens         where one sample alone has no room, a block has some of its tokens, and keys,
                   values and their gradients are there for the whole sample: queries attend to
                   all of them, a block of queries at a time

Each block is started as a segment is. The weights of the segment stream to each, and its gradients
leave after each and are added in MemoryX, as those of micro-batches are. Norms and projections that
a second look at a block takes are made again, which costs nothing in this model, as elsewhere.

Neither a batch norm, which reads all samples, nor ops that move tokens run in blocks.

First of all, a segment whose outputs the output head alone reads, and are larger than what it reads
itself, runs with the head, which runs a part of a sample at a time anyway: the scores of a teacher,
say, which the loss compares with those of its student.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from waferstream.core.program.program import BYTES_PER_ELEMENT, Program
from waferstream.core.program.segment import Footprint, OpWork, Segment
from waferstream.machine.sram.space import Life, Moment, lives, output_head

_BY_TOKEN = frozenset(
    ["matmul", "attention", "elementwise", "norm", "softmax", "reduction", "copy", "view", "random"]
)
"""Kinds of ops that make a token of that token alone, or of all keys and values."""


@dataclass(frozen=True)
class _Extent:
    """What a segment holds for a micro-batch: ``whole_bytes``, and what a block has a part of.

    ``sample_bytes`` are of each sample, ``fixed_bytes`` (masks, positions) of all of them.
    ``crossing_bytes`` of a sample are what each block of its tokens needs; None if it cannot be cut
    by tokens.
    """

    samples: int
    tokens: int
    whole_bytes: int
    fixed_bytes: int
    sample_bytes: int
    crossing_bytes: int | None

    def bytes_in(self, blocks: int) -> int:
        """Return the bytes where it runs in so many blocks."""
        if blocks <= self.samples:
            at_once = -(-self.samples // blocks)
            return self.whole_bytes + self.fixed_bytes + at_once * self.sample_bytes
        assert self.crossing_bytes is not None, "it is cut by tokens"
        part = -(-(self.fixed_bytes + self.sample_bytes) // (blocks // self.samples))
        return self.whole_bytes + self.crossing_bytes + part

    def fewest(self, room: int) -> int:
        """Return the fewest blocks that fit; 1 where none do, or where none would help."""
        if not self.sample_bytes:
            return 1
        left = room - self.whole_bytes
        if left >= self.fixed_bytes + self.sample_bytes:
            return -(-self.samples // ((left - self.fixed_bytes) // self.sample_bytes))
        left -= self.crossing_bytes or 0
        if self.crossing_bytes is None or left <= 0:
            return 1
        parts = -(-(self.fixed_bytes + self.sample_bytes) // left)
        return self.samples * parts if parts <= self.tokens else 1


def run_with_head(program: Program) -> Program:
    """Return the program whose segments run with the output head that save memory so."""
    head, pieces = output_head(program), tuple(lives(program))
    made: dict[int, list[Life]] = {}
    read = [0] * len(program.segments)
    for life in pieces:
        made.setdefault(life.producer, []).append(life)
        for reader in life.readers:
            read[reader] += life.footprint.of(1)
    with_head = {
        index
        for index, outputs in made.items()
        if index < head.start
        and all(reader in head for life in outputs for reader in life.readers)
        and sum(life.footprint.of(1) for life in outputs) > read[index]
        and _crossing_bytes(program, program.segments[index]) == 0
    }
    if not with_head:
        return program
    segments = (replace(each, with_head=each.index in with_head) for each in program.segments)
    return replace(program, segments=tuple(segments))


def fewest_blocks(
    program: Program, moments: Sequence[Moment], room: Sequence[int]
) -> tuple[int, ...]:
    """Return the fewest blocks in which each segment of a micro-batch fits; 1 where none do.

    Args:
        program: The step.
        moments: SRAM at each of its segments, without blocks.
        room: Bytes for activations at each segment.
    """
    samples = program.micro_batch_size
    extents = _extents(program, moments)
    return tuple(
        1
        if moment.footprint.of(samples) <= most
        else extent.fewest(most - moment.stash.of(samples))
        for moment, extent, most in zip(moments, extents, room, strict=True)
    )


def moments_in_blocks(program: Program, moments: tuple[Moment, ...]) -> tuple[Moment, ...]:
    """Return the SRAM at each segment where some run in blocks, from that without blocks."""
    if all(segment.blocks == 1 for segment in program.segments):
        return moments
    each = zip(program.segments, moments, _extents(program, moments), strict=True)
    return tuple(
        moment
        if segment.blocks == 1
        else replace(moment, working=Footprint(fixed_bytes=extent.bytes_in(segment.blocks)))
        for segment, moment, extent in each
    )


def _extents(program: Program, moments: Sequence[Moment]) -> Iterator[_Extent]:
    outputs = [Footprint()] * len(program.segments)
    for life in lives(program):
        outputs[life.producer] += life.footprint
    samples = program.micro_batch_size
    for segment, moment, output in zip(program.segments, moments, outputs, strict=True):
        can_be_cut = not any(map(_reads_all_samples, segment.work))
        whole = output if can_be_cut else moment.working
        part = moment.working.covering(whole) - whole
        yield _Extent(
            samples=samples,
            tokens=program.tokens_per_sample or 1,
            whole_bytes=whole.of(samples),
            fixed_bytes=part.fixed_bytes,
            sample_bytes=part.sample_bytes,
            crossing_bytes=_crossing_bytes(program, segment),
        )


def _reads_all_samples(op: OpWork) -> bool:
    return op.op.startswith("native_batch_norm")


def _crossing_bytes(program: Program, segment: Segment) -> int | None:
    """Return the bytes of a sample's keys, values and their gradients, None if others cross, too.

    Keys and values are taken to have as many heads as queries, which is the most that they have.
    """
    if not all(_is_by_token(op) for op in segment.work):
        return None
    elements = 0
    for op in segment.work:
        if op.kind == "attention":
            heads, _, keys, head_size = op.shape
            elements += 2 * heads * keys * head_size
    samples = max(1, *program.inputs[0].shape[:1])  # of the ops, whatever is planned for
    return elements * BYTES_PER_ELEMENT[program.stream_dtype] // samples


def _is_by_token(op: OpWork) -> bool:
    """Return whether an op makes a token of that token; slices of features pad as they go back."""
    of_activations = op.kind == "matmul" and not op.streams and op.shape[:1] != (1,)
    is_by_token = op.kind in _BY_TOKEN or op.op == "slice_backward"
    return is_by_token and not of_activations and not _reads_all_samples(op)
