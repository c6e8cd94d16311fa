"""An input worker: runs the user's loader, cuts global batches into micro-batches, prefetches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from appliance.batches import GlobalBatches
from wsc.compiler.precision import NAMES
from wsc.core.errors import DataError
from wsc.core.link import Slab
from wsc.core.messages import BatchReady, BatchReleased, Envelope
from wsc.core.names import node_name, worker_name
from wsc.core.packing import byte_ranges, packed_bytes
from wsc.core.program import Mode, Program
from wsc.core.room import Job, Report, RoomContext
from wsc.core.rounds import Rounds


@dataclass(frozen=True)
class InputFeed:
    """Where the batches of one program come from.

    ``source`` is run on the worker and returns a loader; ``leaves`` picks, of a batch's tensors in
    pytree order, those that the program's inputs are.
    """

    source: Callable[[], Any]
    leaves: tuple[int, ...]


@dataclass(frozen=True)
class WorkerSpec:
    """How to build an input worker that feeds the CS nodes ``nodes``."""

    index: int
    nodes: tuple[int, ...]
    feeds: Mapping[Mode, InputFeed]
    programs: Mapping[Mode, Program]
    rounds: Mapping[Mode, Rounds]
    prefetch: int = 2  # micro-batches per lane that wait at a node

    @property
    def name(self) -> str:
        return worker_name(self.index)

    def build(self, context: RoomContext) -> InputWorker:
        return InputWorker(self, context)


class InputWorker:
    """The room of one input worker."""

    def __init__(self, spec: WorkerSpec, context: RoomContext) -> None:
        self.name = spec.name
        self._spec = spec
        self._arena = context.arena
        self._batches: dict[Mode, GlobalBatches] = {}

    def begin(self, job: Job) -> Iterator[Envelope]:
        self._program = self._spec.programs[job.mode]
        self._feed = self._spec.feeds[job.mode]
        if job.mode not in self._batches:
            loader = self._feed.source()
            self._batches[job.mode] = GlobalBatches(loader, self._program.batch_size)
        self._current = self._batches[job.mode]
        rounds = self._spec.rounds[job.mode]
        self._queues = {node: self._micro_batches(job, node) for node in self._spec.nodes}
        self._unreleased: dict[tuple[int, int], Slab] = {}
        for _ in range(self._spec.prefetch * rounds.lanes):
            for node in self._spec.nodes:
                yield from self._send_next(node)

    def handle(self, envelope: Envelope) -> Iterator[Envelope]:
        match envelope.message:
            case BatchReleased(step, micro_batch):
                self._unreleased.pop((step, micro_batch)).free()
                rounds = self._spec.rounds[self._program.mode]
                yield from self._send_next(rounds.node_of(micro_batch))
            case message:
                raise TypeError(f"{self.name} does not take {type(message).__name__}")

    @property
    def finished(self) -> bool:
        return not self._unreleased

    def report(self) -> Report:
        return Report(self.name)

    def _micro_batches(self, job: Job, node: int) -> Iterator[tuple[int, int]]:
        """(step, micro-batch) that a node will compute, in order."""
        rounds = self._spec.rounds[job.mode]
        for step in job.steps:
            for round_index in range(rounds.count):
                for micro_batch in rounds.of_node(round_index, node):
                    yield step, micro_batch

    def _send_next(self, node: int) -> Iterator[Envelope]:
        position = next(self._queues[node], None)
        if position is not None:
            slab = self._pack(*position)
            self._unreleased[position] = slab
            yield Envelope(self.name, node_name(node), BatchReady(*position, slab))

    def _pack(self, step: int, micro_batch: int) -> Slab:
        """The inputs of one micro-batch, one after the other in a slab."""
        leaves = self._current.leaves(step - 1)
        specs = self._program.inputs
        slab = self._arena.allocate(packed_bytes(specs))
        flat = slab.view(torch.uint8)
        first = micro_batch * self._program.micro_batch_size
        for leaf, (spec, start, stop) in zip(self._feed.leaves, byte_ranges(specs), strict=True):
            rows = leaves[leaf][first : first + self._program.micro_batch_size]
            if tuple(rows.shape) != spec.shape or NAMES[rows.dtype] != spec.dtype:
                raise DataError(
                    f"input {spec.name!r} changed between batches",
                    value=f"{NAMES[rows.dtype]} {tuple(rows.shape)} in step {step}",
                    rule=f"{spec.dtype} {spec.shape}, as in the first batch: the step is static",
                    remedy="pad or cut every sample to one shape in the input function",
                )
            flat[start:stop].copy_(rows.contiguous().view(-1).view(torch.uint8))
        return slab
