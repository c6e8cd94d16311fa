"""The static schedule as text: what ``--compile_only`` prints and the artifact keeps."""

from __future__ import annotations

from collections.abc import Iterator

from wsc.core.actions import (
    Action,
    DropActivation,
    DropWeight,
    ReduceGradient,
    RunKernel,
    StashActivation,
    StreamWeight,
    UpdateParameter,
    node_actions,
    server_actions,
)
from wsc.core.program import Bucket, Program, StreamPlan, plan_streams
from wsc.core.units import format_bytes


def schedule_listing(program: Program, num_servers: int = 1) -> str:
    """One line per action of a CS node and of each weight server, for one round."""
    return "\n".join(_lines(program, plan_streams(program, num_servers), num_servers)) + "\n"


def _lines(program: Program, plan: StreamPlan, num_servers: int) -> Iterator[str]:
    size = sum(spec.num_elements for spec in program.parameters)
    yield (
        f"{program.mode} step {program.digest}: {size:,} parameters, streamed in "
        f"{program.stream_dtype}, {len(program.segments)} segments, "
        f"{program.num_micro_batches} micro-batches of {program.micro_batch_size}"
    )
    yield "CS node, per micro-batch:"
    for action in node_actions(program, plan):
        yield f"  {describe(action, program, plan)}"
    for server in range(num_servers):
        yield f"weight server {server}, last round of a step:"
        for action in server_actions(plan, server, is_last_round=True):
            yield f"  {describe(action, program, plan)}"


def describe(action: Action, program: Program, plan: StreamPlan) -> str:
    """One action in words."""
    verb = type(action).__name__.ljust(16)
    match action:
        case StreamWeight(bucket) | DropWeight(bucket):
            return verb + _bucket(plan.weights[bucket], program)
        case ReduceGradient(bucket) | UpdateParameter(bucket):
            return verb + _bucket(plan.gradients[bucket], program)
        case RunKernel(index):
            segment = program.segments[index]
            flops = sum(work.flops for work in segment.work)
            ops = sum(work.kind != "view" for work in segment.work)
            return f"{verb}{segment.layer} {segment.phase}: {ops} ops, {flops / 1e9:.2f} GFLOP"
        case StashActivation(index, num_bytes):
            return f"{verb}{len(program.segments[index].outputs)} values, {format_bytes(num_bytes)}"
        case DropActivation(_, values):
            return f"{verb}{', '.join(values)}"


def _bucket(bucket: Bucket, program: Program) -> str:
    segment = program.segments[bucket.segment]
    return (
        f"{segment.layer} {segment.phase}: {len(bucket.names)} tensors, "
        f"{format_bytes(bucket.num_bytes)}, server {bucket.server}"
    )
