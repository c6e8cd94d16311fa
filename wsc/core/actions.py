"""The static schedule: what each role does in one round of a step, in order.

One list per role, derived from program and stream plan alone. CS nodes walk theirs action by
action, weight servers stream theirs in order, the emulated clock charges the very same lists, and
``--compile_only`` prints them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from wsc.core.program import Program, StreamPlan


@dataclass(frozen=True)
class StreamWeight:
    """Have weight bucket ``bucket`` arrive (node) or send it (server)."""

    bucket: int


@dataclass(frozen=True)
class RunKernel:
    """Run the ops of a segment."""

    segment: int


@dataclass(frozen=True)
class StashActivation:
    """Keep a segment's outputs in SRAM for later segments."""

    segment: int
    num_bytes: int


@dataclass(frozen=True)
class DropWeight:
    """Forget a weight bucket: nothing derived from it is left on the node."""

    bucket: int


@dataclass(frozen=True)
class DropActivation:
    """Forget stashed values that no later segment reads."""

    segment: int
    values: tuple[str, ...]


@dataclass(frozen=True)
class ReduceGradient:
    """Send gradient bucket ``bucket`` up the tree (node) or collect it (server)."""

    bucket: int


@dataclass(frozen=True)
class UpdateParameter:
    """Apply the optimizer to the parameters of a gradient bucket, once per step."""

    bucket: int


Action = (
    StreamWeight
    | RunKernel
    | StashActivation
    | DropWeight
    | DropActivation
    | ReduceGradient
    | UpdateParameter
)


def node_actions(program: Program, plan: StreamPlan) -> tuple[Action, ...]:
    """What a CS node does for one micro-batch."""
    return tuple(_node_actions(program, plan))


def _node_actions(program: Program, plan: StreamPlan) -> Iterator[Action]:
    for segment in program.segments:
        weights = plan.weights_by_segment.get(segment.index, ())
        yield from (StreamWeight(bucket.index) for bucket in weights)
        yield RunKernel(segment.index)
        yield from (DropWeight(bucket.index) for bucket in weights)
        if segment.outputs:
            stashed = segment.stash_bytes(program.micro_batch_size)
            yield StashActivation(segment.index, stashed)
        if segment.drops:
            yield DropActivation(segment.index, segment.drops)
        for bucket in plan.gradients_by_segment.get(segment.index, ()):
            yield ReduceGradient(bucket.index)


def server_actions(plan: StreamPlan, server: int, is_last_round: bool) -> tuple[Action, ...]:
    """What a weight server does in one round; updates follow the last round's gradients."""
    gradients = plan.gradients_of(server)
    updates = gradients if is_last_round else ()
    return (
        *(StreamWeight(bucket.index) for bucket in plan.weights_of(server)),
        *(ReduceGradient(bucket.index) for bucket in gradients),
        *(UpdateParameter(bucket.index) for bucket in updates),
    )
