"""The compile cache: one folder per digest with the program, its schedule and its kernels.

<compile_dir>/cs_<digits>/
    compiled.json   the program and kernels that a cluster loads (waferstream.compiler.compiled)
    schedule.txt    the static schedule, for people
    kernels.py      the generated kernels, for people
<compile_dir>/start_<key>.json
    an artifact of a step that need not be recorded (cstorch.tracing.start_key), for any cluster
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from waferstream.compiler.compiled import (
    Compiled,
    DamagedArtifactError,
    compiled_from_json,
    compiled_to_json,
)
from waferstream.core.errors import ConfigError
from waferstream.core.program.kernel_source import KernelSource
from waferstream.core.program.program import Program
from waferstream.core.program.schedule import Schedule, SegmentStep, schedule_of
from waferstream.core.program.segment import Segment
from waferstream.core.program.stream_plan import Bucket, plan_streams
from waferstream.core.units import counted, format_bytes
from waferstream.host.files import replacing
from waferstream.host.user_state import is_sealed, sealed

FILE = "compiled.json"


class ArtifactCache:
    """Compile artifacts below one folder. Safe to share: a folder appears whole or not at all."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def load(self, digest: str) -> Compiled | None:
        """Return the artifact of a digest, or None; discard a damaged one with a warning."""
        folder = self.root / digest
        if not folder.exists():
            return None
        try:
            return compiled_from_json((folder / FILE).read_bytes(), digest)
        except (OSError, DamagedArtifactError) as error:
            message = f"compile artifact {folder / FILE} is damaged ({error}); compiling again"
            warnings.warn(message, stacklevel=2)
            shutil.rmtree(folder, ignore_errors=True)
            return None

    def store(self, compiled: Compiled) -> Path:
        """Write an artifact and return its folder; ConfigError if it cannot be created."""
        target = self.root / compiled.program.digest
        partial = self._new_folder(target.name)
        try:
            (partial / FILE).write_text(compiled_to_json(compiled))
            (partial / "schedule.txt").write_text(schedule_listing(compiled.program))
            (partial / "kernels.py").write_text(_kernels_text(compiled))
            os.replace(partial, target)
        except OSError:
            # Another process stored the same artifact first, or the disk is full. The cache is a
            # convenience, so neither is a reason to fail.
            shutil.rmtree(partial, ignore_errors=True)
        return target

    def load_start(self, key: str, target: str) -> tuple[Compiled, list[Any], bool] | None:
        """Return an artifact for a cluster, the notes under a key, and whether it was there.

        None if they are not whole. The artifact follows from one for another cluster, and is stored
        then.
        """
        try:
            digest, notes, seal = json.loads(self._start_file(key).read_text())
        except (OSError, ValueError, TypeError):
            return None
        # The digest names a folder that is removed when it is damaged: not for a stranger to say.
        if not is_sealed(_start_content(key, digest, notes), seal):
            return None
        if (known := self.load(digest)) is None:
            return None
        wanted = known.for_target(target)
        if wanted.program.digest == digest:
            return known, notes, True
        if (found := self.load(wanted.program.digest)) is not None:
            return found, notes, True
        self.store(wanted)
        return wanted, notes, False

    def store_start(self, key: str, digest: str, notes: Sequence[Any] = ()) -> None:
        """Put the artifact with a digest, and notes in JSON, under a key, if the disk has room."""
        data = [digest, list(notes), sealed(_start_content(key, digest, list(notes)))]
        with suppress(OSError), replacing(self._start_file(key)) as partial:
            partial.write_text(json.dumps(data))

    def _start_file(self, key: str) -> Path:
        return self.root / f"start_{key}.json"

    def _new_folder(self, name: str) -> Path:
        """Create a folder that is filled before it is renamed to its final name."""
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            return Path(tempfile.mkdtemp(prefix=f".{name}-", dir=self.root))
        except OSError as error:
            raise ConfigError(
                "compile_dir must be a writable folder",
                code="compile-dir-not-writable",
                where=str(self.root),
                value=error.strerror,
            ) from error


def _start_content(key: str, digest: str, notes: list[Any]) -> bytes:
    """Return the bytes that the seal of a start covers."""
    return json.dumps([key, digest, notes]).encode()


def _kernels_text(compiled: Compiled) -> str:
    """Return the kernels of all segments with their names as comments."""
    program, short = compiled.program, compiled.short
    parts = _texts(program.segments, compiled.kernels, program.micro_batch_size)
    if short is not None:
        parts += _texts(short.segments, short.kernels, program.micro_batch_size - 1)
    return "\n".join(parts)


def _texts(segments: Sequence[Segment], kernels: Sequence[KernelSource], size: int) -> list[str]:
    return [
        f"# segment {segment.index}: {segment.layer} {segment.phase}, {counted(size, 'sample')}\n"
        f"{kernel.text}"
        for segment, kernel in zip(segments, kernels, strict=True)
    ]


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
