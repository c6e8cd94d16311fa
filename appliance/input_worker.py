"""An input worker: runs the user's loader, cuts global batches into micro-batches, prefetches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from appliance.batches import GlobalBatches
from wsc.compiler.precision import NAMES
from wsc.core.errors import DataError
from wsc.core.installation import Installation
from wsc.core.messages import BatchReady, BatchReleased, Envelope
from wsc.core.names import node_name, worker_name
from wsc.core.packing import byte_ranges, packed_bytes
from wsc.core.payload import Slab
from wsc.core.program import Mode
from wsc.core.role import Job, Report, RoleContext


@dataclass(frozen=True)
class WorkerSpec:
    """How to build an input worker that feeds the CS nodes ``nodes``."""

    index: int
    nodes: tuple[int, ...]
    prefetch: int = 2  # micro-batches per lane that wait at a node

    @property
    def name(self) -> str:
        return worker_name(self.index)

    def build(self, context: RoleContext) -> InputWorker:
        return InputWorker(self, context)


class InputWorker:
    """The role of one input worker."""

    def __init__(self, spec: WorkerSpec, context: RoleContext) -> None:
        self.name = spec.name
        self._spec = spec
        self._arena = context.arena
        self._installed: dict[Mode, Installation] = {}
        self._batches: dict[Mode, GlobalBatches] = {}

    def install(self, installation: Installation) -> None:
        mode = installation.mode
        self._installed[mode] = installation
        make_loader = installation.feed.source
        self._batches[mode] = GlobalBatches(make_loader, installation.program.batch_size)

    def begin(self, job: Job) -> Iterator[Envelope]:
        installed = self._installed[job.mode]
        self._program = installed.program
        self._leaves = installed.feed.leaves
        self._rounds = rounds = installed.rounds
        self._current = self._batches[job.mode]
        self._queues = {node: self._micro_batches(job, node) for node in self._spec.nodes}
        self._unreleased: dict[tuple[int, int], Slab] = {}
        for _ in range(self._spec.prefetch * rounds.lanes):
            for node in self._spec.nodes:
                yield from self._send_next(node)

    def handle(self, envelope: Envelope) -> Iterator[Envelope]:
        match envelope.message:
            case BatchReleased(step, micro_batch):
                self._unreleased.pop((step, micro_batch)).free()
                yield from self._send_next(self._rounds.node_of(micro_batch))
            case message:
                raise TypeError(f"{self.name} does not take {type(message).__name__}")

    @property
    def finished(self) -> bool:
        return not self._unreleased

    def report(self) -> Report:
        return Report(self.name)

    def _micro_batches(self, job: Job, node: int) -> Iterator[tuple[int, int]]:
        """(step, micro-batch) that a node will compute, in order."""
        rounds = self._rounds
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
        for leaf, (spec, start, stop) in zip(self._leaves, byte_ranges(specs), strict=True):
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
