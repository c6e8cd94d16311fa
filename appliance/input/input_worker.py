"""The input worker: runs the user's loader, cuts batches into micro-batches, prefetches them."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from appliance.input.batches import GlobalBatches
from waferstream.core.errors import DataError
from waferstream.core.messages.messages import BatchReady, BatchReleased, Envelope
from waferstream.core.messages.payload import Slab, byte_ranges, payload_bytes
from waferstream.core.program.program import ProgramKind, TensorSpec
from waferstream.core.roles.activities import ActivityLog, Place
from waferstream.core.roles.commands import Install
from waferstream.core.roles.installation import Installation
from waferstream.core.roles.names import index_of, node_name, worker_name
from waferstream.core.roles.role import (
    Command,
    Job,
    JobState,
    Report,
    RoleContext,
    Waiting,
    not_taken,
)
from waferstream.numerics.precision import NAMES


@dataclass(frozen=True)
class WorkerSpec:
    """How to build an input worker that feeds the CS nodes ``nodes``."""

    index: int
    nodes: tuple[int, ...]
    prefetch: int = 2  # rounds whose micro-batches wait at a node

    @property
    def name(self) -> str:
        return worker_name(self.index)

    def build(self, context: RoleContext) -> InputWorker:
        return InputWorker(self, context)


class InputWorker:
    """The role of one input worker."""

    def __init__(self, spec: WorkerSpec, context: RoleContext) -> None:
        self.name = spec.name
        self.spec = spec
        self.context = context
        self.installed: dict[ProgramKind, Installation] = {}
        self.batches: dict[ProgramKind, GlobalBatches] = {}
        self.label_weights: dict[ProgramKind, LabelWeights] = {}
        self.whole_values: dict[ProgramKind, WholeValues] = {}

    def do(self, command: Command[Any]) -> Any:
        """Do what a command says."""
        match command:
            case Install(installation):
                self._install(installation)
            case _:
                raise not_taken(self.name, command)

    def _install(self, installation: Installation) -> None:
        kind = installation.kind
        self.installed[kind] = installation
        feed, batch_size = installation.feed, installation.program.batch_size
        self.batches[kind] = GlobalBatches(feed.source, batch_size, feed.seed)
        self.label_weights[kind] = LabelWeights(installation)
        self.whole_values[kind] = WholeValues(installation)

    def begin(self, job: Job) -> WorkerJob:
        return WorkerJob(self, job)


class WorkerJob(JobState[InputWorker]):
    """One job of an input worker: how much it has sent to each node, and what is unreleased."""

    def __init__(self, role: InputWorker, job: Job) -> None:
        super().__init__(role)
        self._job = job
        self._rounds = job.rounds_of(role.installed[job.kind].rounds)
        self._step = dict.fromkeys(role.spec.nodes, job.first_step)
        # Micro-batches of that step that each node still gets, in the order in which it takes them.
        self._left = {node: self._order(node, job.first_step) for node in role.spec.nodes}
        self._num_due = Counter(map(self._due_step, role.spec.nodes))  # nodes by that step
        self._unreleased: dict[tuple[str, int, int], Slab] = {}  # by node, step and micro-batch
        self._log = ActivityLog(job.trace_limit)

    def start(self) -> Iterator[Envelope]:
        spec = self.role.spec
        ahead = {node: spec.prefetch * self._rounds.share_of(node) for node in spec.nodes}
        for turn in range(max(ahead.values(), default=0)):
            for node in spec.nodes:
                if turn < ahead[node]:
                    yield from self._send_next(node)

    def handle(self, envelope: Envelope) -> Iterator[Envelope]:
        match envelope.message:
            case BatchReleased(step, micro_batch):
                self._unreleased.pop((envelope.source, step, micro_batch)).free()
                yield from self._send_next(index_of(envelope.source))
            case message:
                raise self.refusal(message)

    @property
    def finished(self) -> bool:
        return not self._unreleased

    def report(self) -> Report:
        log = self._log
        return Report(self.role.name, intervals=log.intervals, num_lost=log.num_lost)

    def waits_for(self) -> Waiting:
        nodes = sorted({node for node, _, _ in self._unreleased})
        return Waiting("the release of micro-batches", tuple(nodes))

    @property
    def _installed(self) -> Installation:
        return self.role.installed[self._job.kind]

    def _order(self, node: int, step: int) -> deque[int]:
        """Return the micro-batches that a node takes in a step."""
        return deque(self._job.verification.micro_batches(step, node, self._rounds))

    def _due_step(self, node: int) -> int:
        """Return the first step of which a node has not got every micro-batch."""
        return self._step[node] + (not self._left[node])

    def _send_next(self, node: int) -> Iterator[Envelope]:
        before, last_step = self._due_step(node), self._job.last_step
        while not self._left[node] and self._step[node] < last_step:
            self._step[node] += 1
            self._left[node] = self._order(node, self._step[node])
        if not self._left[node]:
            self._drop_done(before, self._due_step(node))
            return
        step, micro_batch = self._step[node], self._left[node].popleft()
        place = Place(self._job.kind, step, self._rounds.round_of(micro_batch))
        num_bytes = payload_bytes(self._installed.program.inputs_of(micro_batch))
        with self._log.during("load", place, f"micro-batch {micro_batch}", num_bytes):
            slab = self._pack(step, micro_batch)
        self._unreleased[node_name(node), step, micro_batch] = slab
        weights = self._label_weights(step, micro_batch)
        self._drop_done(before, self._due_step(node))
        yield self.envelope(node_name(node), BatchReady(step, micro_batch, slab, weights))

    def _drop_done(self, before: int, due: int) -> None:
        """Forget the batches that no node gets any more, when the due step of a node has changed.

        Nodes may be steps apart, and each gets the next step when it has all of this one. They are
        counted by step, since looking at all for each message would take time that grows with the
        square of their number.
        """
        if due == before:
            return
        self._num_due[due] += 1
        self._num_due[before] -= 1
        self._num_due += Counter()  # without those at zero
        oldest_step = min(self._num_due)
        self.role.batches[self._job.kind].drop_before(self._batch_of(oldest_step))
        self.role.label_weights[self._job.kind].drop_before(oldest_step)
        self.role.whole_values[self._job.kind].drop_before(oldest_step)

    def _pack(self, step: int, micro_batch: int) -> Slab:
        """Return a slab with the inputs of one micro-batch, one after the other."""
        specs = self._installed.program.inputs_of(micro_batch)
        slab = self.role.context.arena.allocate(payload_bytes(specs))
        flat = slab.view(torch.uint8)
        ranges = byte_ranges(specs)
        inputs = self._inputs(step, micro_batch)
        for rows, (spec, start, stop) in zip(inputs, ranges, strict=True):
            if tuple(rows.shape) != spec.shape or NAMES[rows.dtype] != spec.dtype:
                raise _changed(spec, rows, step)
            flat[start:stop].copy_(rows.contiguous().view(-1).view(torch.uint8))
        return slab

    def _inputs(self, step: int, micro_batch: int) -> list[torch.Tensor]:
        """Return each input of the program for a micro-batch."""
        leaves = self.role.batches[self._job.kind].leaves(self._batch_of(step))
        program, feed = self._installed.program, self._installed.feed
        num_own = len(program.inputs) - program.num_cut
        batch = [leaves[leaf] for leaf in feed.leaves[:num_own]]
        rows = program.rows_of(micro_batch)
        whole = self.role.whole_values[self._job.kind].of(step, micro_batch, batch)
        return [*(tensor[rows] for tensor in batch), *whole]

    def _batch_of(self, step: int) -> int:
        return self._installed.feed.batch_of(self._job.kind, step)

    def _label_weights(self, step: int, micro_batch: int) -> tuple[float, ...]:
        known = self.role.label_weights[self._job.kind]
        return known.of(step, micro_batch, partial(self._inputs, step))


def _changed(spec: TensorSpec, rows: torch.Tensor, step: int) -> DataError:
    return DataError(
        f"input {spec.name!r} must keep its shape and dtype in every batch",
        code="input-changed",
        value=f"{NAMES[rows.dtype]} {tuple(rows.shape)} in step {step}",
        rule=f"{spec.dtype} {spec.shape}, as in the first batch: the program is static",
        remedy="pad or cut every sample to one shape in the input function",
    )


class LabelWeights:
    """Weights of the micro-batches of recent steps in a program's means over labels."""

    def __init__(self, installation: Installation) -> None:
        self._program = installation.program
        sources = [sized.label_counts for sized in installation.sized]
        self._count = [source.build() for source in sources if source is not None]
        self._recent: dict[int, list[tuple[float, ...]]] = {}

    def of(
        self, step: int, micro_batch: int, inputs: Callable[[int], Sequence[torch.Tensor]]
    ) -> tuple[float, ...]:
        """Return the weight of a micro-batch in each mean, in the order of the program.

        Args:
            step: The step, counted from 1.
            micro_batch: The micro-batch.
            inputs: Returns the program's inputs of a micro-batch of this step.
        """
        if not self._count:
            return ()
        if step not in self._recent:
            total = self._program.num_micro_batches
            counts = [self._counts(index, inputs(index)) for index in range(total)]
            means = [mean.weights(counts) for mean in self._program.label_means]
            self._recent[step] = list(zip(*means, strict=True))
        return self._recent[step][micro_batch]

    def _counts(self, micro_batch: int, inputs: Sequence[torch.Tensor]) -> list[float]:
        count = self._count[self._program.is_short(micro_batch)]
        return [float(labels) for labels in count(*inputs)]

    def drop_before(self, step: int) -> None:
        """Forget the weights of earlier steps."""
        for earlier in [known for known in self._recent if known < step]:
            del self._recent[earlier]


class WholeValues:
    """Values of recent global batches that follow from their inputs, cut for each micro-batch."""

    def __init__(self, installation: Installation) -> None:
        self._program = installation.program
        self._kernel = None if installation.whole is None else installation.whole.build()
        self._recent: dict[int, tuple[torch.Tensor, ...]] = {}

    def of(self, step: int, micro_batch: int, batch: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Return the values that a micro-batch gets, after its own inputs.

        Args:
            step: The step, counted from 1.
            micro_batch: The micro-batch.
            batch: The program's inputs of the whole batch of this step.
        """
        if self._kernel is None:
            return []
        if step not in self._recent:
            self._recent[step] = self._kernel(*batch)
        values = self._recent[step]
        return [
            *map(self._cut(micro_batch), values[: self._program.num_cut]),
            *values[self._program.num_cut :],
        ]

    def _cut(self, micro_batch: int) -> Callable[[torch.Tensor], torch.Tensor]:
        """Return the function that cuts the rows of a micro-batch out of a value."""
        rows, batch_size = self._program.rows_of(micro_batch), self._program.batch_size

        def cut(value: torch.Tensor) -> torch.Tensor:
            each = value.shape[0] // batch_size
            return value[rows.start * each : rows.stop * each]

        return cut

    def drop_before(self, step: int) -> None:
        """Forget the values of earlier steps."""
        for earlier in [known for known in self._recent if known < step]:
            del self._recent[earlier]
