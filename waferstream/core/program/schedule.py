"""The static schedule: rounds of a step, and the segment steps that all follow in a round.

A step streams its weights once per *round*; in a round every node works on up to ``per_node``
micro-batches, as many as the memory of its host allows (appliance.elaboration.round_size).
Micro-batches are assigned in index order, so a round covers one contiguous run of them, each node a
contiguous part of that run, and siblings of the reduce order mostly meet inside a node or under one
switch.

The emulated machine takes one micro-batch per system and round, whatever the host does.

CS nodes execute the segment steps in order, weight servers stream their buckets in the same order,
the timing models charge the same steps, and ``--compile_only`` prints them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

from waferstream.core.program.program import Program
from waferstream.core.program.segment import Footprint
from waferstream.core.program.stream_plan import Bucket, StreamPlan

BucketLoad = tuple[int, int, int]
"""Server, elements and bytes of a bucket, as often as it travels."""


@dataclass(frozen=True)
class Rounds:
    """Micro-batches of a step spread over ``num_nodes`` nodes, ``per_node`` each in a round.

    ``shares`` has the number of each node instead, where the hosts differ in speed.
    """

    num_micro_batches: int
    num_nodes: int
    per_node: int = 1
    shares: tuple[int, ...] = ()

    @property
    def count(self) -> int:
        """Rounds in a step."""
        return -(-self.num_micro_batches // self._bounds[-1])

    def share_of(self, node: int) -> int:
        """Return the most micro-batches that a node takes in a round."""
        return self._bounds[node + 1] - self._bounds[node]

    @cached_property
    def _bounds(self) -> tuple[int, ...]:
        """The first micro-batch of each node in the first round, and that of the second round."""
        shares = self.shares or (self.per_node,) * self.num_nodes
        return tuple(accumulate(shares, initial=0))

    def of_node(self, round_index: int, node: int) -> range:
        """Return the micro-batches of one node in one round; empty when none are left."""
        return self.of_nodes(round_index, range(node, node + 1))

    def of_nodes(self, round_index: int, nodes: range) -> range:
        """Return the micro-batches of a run of neighbouring nodes in one round."""
        before = round_index * self._bounds[-1]
        first = before + self._bounds[nodes.start]
        stop = min(before + self._bounds[nodes.stop], self.num_micro_batches)
        return range(first, max(first, stop))

    def round_of(self, micro_batch: int) -> int:
        """Return the round in which a micro-batch is computed."""
        return micro_batch // self._bounds[-1]

    def node_of(self, micro_batch: int) -> int:
        """Return the node that computes a micro-batch."""
        return bisect_right(self._bounds, micro_batch % self._bounds[-1]) - 1


@dataclass(frozen=True)
class SegmentStep:
    """One segment of one round: what streams in, what stays on the wafer, what streams out.

    In order: the weight buckets arrive, the kernel runs, the weights are dropped, ``stashes`` are
    kept for later segments, ``drops`` are forgotten, the gradient buckets leave.
    """

    segment: int  # index in Program.segments
    label: str  # layer and phase, as traces and listings print it
    weights: tuple[Bucket, ...]
    gradients: tuple[Bucket, ...]
    stashes: tuple[str, ...]
    drops: tuple[str, ...]
    stash: Footprint  # SRAM of ``stashes``, for any micro-batch size

    @cached_property
    def load(self) -> tuple[tuple[BucketLoad, ...], tuple[BucketLoad, ...]]:
        """Everything that decides how long the streams of the step take."""
        return _load(self.weights), _load(self.gradients)


Schedule = tuple[SegmentStep, ...]
"""The steps of one round, in order of execution."""


def schedule_of(program: Program, plan: StreamPlan) -> Schedule:
    """Return the schedule of one round of a program."""
    weights, gradients = _by_segment(plan.weights), _by_segment(plan.gradients)
    return tuple(
        SegmentStep(
            segment=segment.index,
            label=f"{segment.layer} {segment.phase}",
            weights=weights.get(segment.index, ()),
            gradients=gradients.get(segment.index, ()),
            stashes=segment.outputs,
            drops=segment.drops,
            stash=segment.stash_footprint,
        )
        for segment in program.segments
    )


def streamed_by(schedule: Schedule, server: int) -> tuple[Bucket, ...]:
    """Return the weight buckets that one server sends in a round, in order."""
    return tuple(bucket for step in schedule for bucket in step.weights if bucket.server == server)


def collected_by(schedule: Schedule, server: int) -> tuple[Bucket, ...]:
    """Return the gradient buckets that one server receives in a round, in order."""
    return tuple(
        bucket for step in schedule for bucket in step.gradients if bucket.server == server
    )


def _by_segment(buckets: Sequence[Bucket]) -> dict[int, tuple[Bucket, ...]]:
    table: dict[int, tuple[Bucket, ...]] = {}
    for bucket in buckets:
        table[bucket.segment] = (*table.get(bucket.segment, ()), bucket)
    return table


def _load(buckets: Sequence[Bucket]) -> tuple[BucketLoad, ...]:
    return tuple((bucket.server, bucket.moved_elements, bucket.moved_bytes) for bucket in buckets)
