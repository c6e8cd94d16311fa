"""The schedule of a CS node, one visit to each segment at a time.

The action list of a round (wsc.core.actions) as the clock reads it: what streams in for a segment,
and what leaves when it has run. Layers repeat, so most visits are like the one before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from wsc.core.actions import ReduceGradient, RunKernel, StreamWeight, node_actions
from wsc.core.program import Bucket, Program, StreamPlan

Load = tuple[int, int, int]
"""Server, elements and bytes of a bucket."""


@dataclass(frozen=True)
class Visit:
    """One segment: its weights are dropped, and its gradients leave, as soon as it has run."""

    segment: int
    label: str
    """What a trace calls the work."""
    weights: tuple[Bucket, ...]
    gradients: tuple[Bucket, ...]

    @cached_property
    def load(self) -> tuple[tuple[Load, ...], tuple[Load, ...]]:
        """All that decides how long its streams take."""
        return _load(self.weights), _load(self.gradients)


def visits_of(program: Program, plan: StreamPlan) -> tuple[Visit, ...]:
    """The visits of one round, in order."""
    visits: list[Visit] = []
    weights: list[Bucket] = []
    for action in node_actions(program, plan):
        match action:
            case StreamWeight(bucket):
                weights.append(plan.weights[bucket])
            case RunKernel(index):
                segment = program.segments[index]
                label = f"{segment.layer} {segment.phase}"
                visits.append(Visit(index, label, tuple(weights), ()))
                weights.clear()
            case ReduceGradient(bucket):
                gradients = (*visits[-1].gradients, plan.gradients[bucket])
                visits[-1] = replace(visits[-1], gradients=gradients)
    return tuple(visits)


def _load(buckets: Sequence[Bucket]) -> tuple[Load, ...]:
    return tuple((bucket.server, bucket.num_elements, bucket.num_bytes) for bucket in buckets)
