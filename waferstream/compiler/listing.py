"""The static schedule as text: what ``--compile_only`` prints and the artifact keeps."""

from __future__ import annotations

from collections.abc import Iterator

from waferstream.core.program.program import Program
from waferstream.core.program.schedule import Schedule, SegmentStep, schedule_of
from waferstream.core.program.stream_plan import Bucket, plan_streams
from waferstream.core.units import format_bytes


def schedule_listing(program: Program, num_servers: int = 1) -> str:
    """Return one line per action of a CS node and of each weight server, for one round."""
    schedule = schedule_of(program, plan_streams(program, num_servers))
    return "\n".join(_lines(program, schedule, num_servers)) + "\n"


def _lines(program: Program, schedule: Schedule, num_servers: int) -> Iterator[str]:
    size = sum(spec.num_elements for spec in program.parameters)
    yield (
        f"{program.kind} step {program.digest}: {size:,} parameters, streamed in "
        f"{program.stream_dtype}, {len(program.segments)} segments, "
        f"{program.num_micro_batches} micro-batches of {program.micro_batch_size}"
    )
    yield "CS node, per micro-batch:"
    for step in schedule:
        yield from _node_lines(program, step)
    for server in range(num_servers):
        yield f"weight server {server}, last round of a step:"
        yield from _server_lines(schedule, server)


def _node_lines(program: Program, step: SegmentStep) -> Iterator[str]:
    segment = program.segments[step.segment]
    flops = sum(work.flops for work in segment.work)
    ops = sum(work.kind != "view" for work in segment.work)
    for bucket in step.weights:
        yield _line("stream weights", _bucket(step, bucket))
    yield _line("run kernel", f"{step.label}: {ops} ops, {flops / 1e9:.2f} GFLOP")
    for bucket in step.weights:
        yield _line("drop weights", _bucket(step, bucket))
    if step.stashes:
        stash_bytes = step.stash.of(program.micro_batch_size)
        yield _line("stash", f"{len(step.stashes)} values, {format_bytes(stash_bytes)}")
    if step.drops:
        yield _line("drop values", ", ".join(step.drops))
    for bucket in step.gradients:
        yield _line("send gradients", _bucket(step, bucket))


def _server_lines(schedule: Schedule, server: int) -> Iterator[str]:
    weights = [(step, bucket) for step in schedule for bucket in step.weights]
    gradients = [(step, bucket) for step in schedule for bucket in step.gradients]
    for verb, buckets in (
        ("stream weights", weights),
        ("sum gradients", gradients),
        ("update masters", gradients),
    ):
        for step, bucket in buckets:
            if bucket.server == server:
                yield _line(verb, _bucket(step, bucket))


def _line(verb: str, detail: str) -> str:
    return f"  {verb:<16}{detail}"


def _bucket(step: SegmentStep, bucket: Bucket) -> str:
    size = format_bytes(bucket.num_bytes)
    return f"{step.label}: {len(bucket.names)} tensors, {size}, server {bucket.server}"
