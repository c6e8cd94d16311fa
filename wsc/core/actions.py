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
    """Have weight shard ``shard`` arrive (node) or send it (server)."""

    shard: int


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
    """Forget a weight shard: nothing derived from it is left on the node."""

    shard: int


@dataclass(frozen=True)
class DropActivation:
    """Forget stashed values that no later segment reads."""

    segment: int
    values: tuple[str, ...]


@dataclass(frozen=True)
class ReduceGradient:
    """Send gradient shard ``shard`` up the tree (node) or collect it (server)."""

    shard: int


@dataclass(frozen=True)
class UpdateParameter:
    """Apply the optimizer to the parameters of a gradient shard, once per step."""

    shard: int


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
        yield from (StreamWeight(shard.index) for shard in weights)
        yield RunKernel(segment.index)
        yield from (DropWeight(shard.index) for shard in weights)
        if segment.outputs:
            stashed = segment.stash_bytes(program.micro_batch_size)
            yield StashActivation(segment.index, stashed)
        if segment.drops:
            yield DropActivation(segment.index, segment.drops)
        for shard in plan.gradients_by_segment.get(segment.index, ()):
            yield ReduceGradient(shard.index)


def server_actions(plan: StreamPlan, server: int, is_last_round: bool) -> tuple[Action, ...]:
    """What a weight server does in one round; updates follow the last round's gradients."""
    gradients = plan.gradients_of(server)
    updates = gradients if is_last_round else ()
    return (
        *(StreamWeight(shard.index) for shard in plan.weights_of(server)),
        *(ReduceGradient(shard.index) for shard in gradients),
        *(UpdateParameter(shard.index) for shard in updates),
    )
