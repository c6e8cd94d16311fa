"""A weight server of MemoryX: streams weights, collects gradients, applies the optimizer.

Weights stream as ``memoryx.job.streamer`` allows, gradients become sums in
``memoryx.job.collector``, and each update may allow further weights to stream.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch

from memoryx.holder import Holder
from memoryx.job.bucket_work import BucketWork, cast, first_use, followers
from memoryx.job.collector import GradientCollector, NormExchange
from memoryx.job.commitment import Commitment
from memoryx.job.gradient_changes import GradientChanges, LossScaling
from memoryx.job.streamer import Streamer
from memoryx.job.watcher import NormNotes, Watcher
from memoryx.memory.flash_spec import FlashSpec
from memoryx.sparsity.masks import SparseStreams
from waferstream.core.messages.messages import (
    Envelope,
    GradientReady,
    GradientReleased,
    NormPartial,
    NormTotal,
    StepDone,
    UpdateReady,
    UpdateReleased,
    UpdateSkipped,
    WeightsReleased,
)
from waferstream.core.messages.partial_sum import Credit, PartialSum
from waferstream.core.messages.payload import Slab
from waferstream.core.program.program import TensorSpec
from waferstream.core.program.schedule import collected_by, streamed_by
from waferstream.core.program.stream_plan import Bucket
from waferstream.core.roles.names import replica_name, server_name
from waferstream.core.roles.role import Job, JobState, Progress, Report, RoleContext, Waiting


@dataclass(frozen=True)
class ServerSpec:
    """How to build a weight server. ``root`` is the switch at the top of the SwarmX tree."""

    index: int
    num_servers: int
    root: str
    parameters: tuple[TensorSpec, ...]  # of the whole model
    window: int
    flash: FlashSpec | None = None

    @property
    def name(self) -> str:
        return server_name(self.index)

    def build(self, context: RoleContext) -> WeightServer:
        return WeightServer(self, context)


class WeightServer(Holder):
    """The role of one weight server."""

    spec: ServerSpec

    def __init__(self, spec: ServerSpec, context: RoleContext) -> None:
        super().__init__(
            spec.name, spec.index, spec.num_servers, spec.parameters, context.disk, spec.flash
        )
        self.spec = spec
        self.context = context

    def begin(self, job: Job) -> ServerJob:
        begun = ServerJob(self, job)
        self.note_begin(begun, job)
        return begun


class PendingUpdate(NamedTuple):
    """The whole gradient of a bucket, not applied yet.

    ``applied`` is the number of its step among those whose updates are applied, which a dynamic
    loss scale may skip.
    """

    step: int
    applied: int
    bucket: int
    whole: PartialSum
    coefficient: float = 1.0  # of the gradient
    is_skipped: bool = False


class ServerJob(JobState[WeightServer]):
    """One job of a weight server: what it has streamed, collected and updated."""

    def __init__(self, role: WeightServer, job: Job) -> None:
        super().__init__(role)
        index, installed = role.spec.index, role.installed[job.kind]
        program, plan = installed.program, installed.plan
        collected = collected_by(installed.schedule, index)
        self._stream_dtype = program.stream_dtype
        self._report = Report(role.name)
        self._work = BucketWork(program, role.context.cores, self._report.intervals)
        self._buckets = {bucket.index: bucket for bucket in collected}
        self._credits: list[Envelope] = []
        num_updates = sum(len(bucket.names) for bucket in collected)
        self._updates_left = len(job.steps) * num_updates
        self.attempt = job.attempt
        self._commitment = Commitment(role.name, installed, job, num_updates)
        self._pending: list[PendingUpdate] = []  # until everyone has done the step before
        self._replica = replica_name(index) if installed.has_replicas else None
        self._lent: dict[tuple[int, int], Slab] = {}  # gradients that the replica reads
        streamed = streamed_by(installed.schedule, index)
        self._first_use = {bucket.index: first_use(bucket, streamed) for bucket in collected}
        self._next_cast, self._next_update = followers(streamed), followers(collected)
        self._streamer = Streamer(
            job.steps,
            job.rounds_of(installed.rounds).count,
            streamed,
            role.spec.window,
            # An evaluation updates nothing, so its weights have nothing to wait for.
            trained=[n for b in plan.gradients for n in b.changed] if job.kind.updates else (),
        )
        self._norms = NormExchange(sorted({bucket.server for bucket in plan.gradients}))
        self._notes = NormNotes(program, job, self._report)
        self._collector = GradientCollector(
            index,
            program,
            collected,
            installed.optimizer,
            self._notes,
            role.store.masks,
            GradientChanges(installed.gradient_kernels),
        )
        self._sparse = SparseStreams(role.store.masks, program.stream_dtype)
        self._scaling = LossScaling(installed.optimizer, job)
        self._watcher = Watcher(program, job, self._report)
        self._updates_nothing = installed.optimizer is None
        self._clips_by_norm = installed.optimizer is not None and installed.optimizer.clips_by_norm

    def start(self) -> Iterator[Envelope]:
        self._watcher.begin(self.role.store.weights)
        self._notes.begin(self.role.store.weights)
        yield from self._stream()

    def handle(self, envelope: Envelope) -> Iterator[Envelope]:
        match envelope.message:
            case WeightsReleased(step, round_index, bucket):
                self._streamer.release(step, round_index, bucket)
            case GradientReady() as gradient:
                yield from self._collect(envelope.source, gradient)
            case NormPartial() as partial:
                for target, total in self._norms.take(partial):
                    yield self.envelope(target, total)
            case NormTotal() as total:
                yield from self._settle(total)
            case UpdateReleased(step, bucket):
                self._lent.pop((step, bucket)).free()
            case StepDone() as done:
                self._commitment.note(envelope.source, done)
                yield from self._apply_allowed()
            case message:
                raise self.refusal(message)
        yield from self._stream()

    @property
    def finished(self) -> bool:
        is_updated = self._updates_left == 0 and not self._lent
        return self._streamer.finished and is_updated and self._commitment.finished

    def report(self) -> Report:
        return self._report

    def waits_for(self) -> Waiting:
        root = self.role.spec.root
        if self._streamer.has_unreleased:
            return Waiting("the release of weights", (root,))
        if self._collector.waits_for_others:
            return Waiting("the gradient norm of all servers", (self._norms.leader,))
        if self._pending:
            return Waiting("the end of a step", self._commitment.behind(self._pending[0].step))
        if self._replica is not None and self._lent:
            return Waiting("the updates of the replica", (self._replica,))
        return Waiting("gradients", (root,))

    def progress(self) -> Progress:
        """Return how far the job is."""
        return self._commitment.progress(self._report)

    def steps_held(self) -> frozenset[int]:
        """Return the steps after which the weights stand."""
        return self._commitment.steps_held()

    def _stream(self) -> Iterator[Envelope]:
        for ready in self._streamer.send(self._cast):
            yield self.envelope(self.role.spec.root, self._scaling.stated_in(ready))

    def _cast(self, step: int, round_index: int, bucket: Bucket) -> Slab:
        """Return a slab with the bucket's masters in stream dtype."""
        packed = self._sparse.weights(bucket, self._update_of(step))
        num_bytes = bucket.num_bytes if packed is None else packed.num_bytes
        slab = self.role.context.arena.allocate(num_bytes)
        with self._work.doing("cast", step, bucket, round_index, num_bytes):
            cast(self.role.store, bucket, packed, slab, self._stream_dtype)
        self.role.store.expect(self._next_cast[bucket.index], with_state=False)
        return slab

    def _update_of(self, step: int) -> int:
        """Return the number of a step's update for the optimizer; 0 if there is none."""
        if self._updates_nothing:
            return 0
        return self.role.store.update_of(self._scaling.applied(step))

    def _collect(self, source: str, gradient: GradientReady) -> Iterator[Envelope]:
        released = GradientReleased(
            gradient.step, gradient.round, gradient.bucket, gradient.subtree
        )
        credit = Credit(self.envelope(source, released), self._credits)
        bucket, num_bytes = self._buckets[gradient.bucket], gradient.payload.num_bytes
        with self._work.doing("sum", gradient.step, bucket, gradient.round, num_bytes):
            applied = self._scaling.applied(gradient.step)
            update = self._update_of(gradient.step)
            collected = self._collector.take(
                gradient, credit, self._scaling.scale, update, self.role.store.weights
            )
        for index, whole in collected.sums.items():
            self._pending.append(PendingUpdate(gradient.step, applied, index, whole))
        yield from self._apply_allowed()
        if collected.partial is not None:
            yield self.envelope(self._norms.leader, collected.partial)

    def _settle(self, total: NormTotal) -> Iterator[Envelope]:
        """Apply or skip the update of a step on which all servers have agreed."""
        if self._replica is not None:
            yield self.envelope(self._replica, total)
        if self._clips_by_norm:
            self._report.norms[total.step] = total.norm
        sums, coefficient = self._collector.settle(total)
        applied = self._scaling.applied(total.step)
        is_skipped = not total.is_finite
        self._pending += (
            PendingUpdate(total.step, applied, bucket, sums[bucket], coefficient, is_skipped)
            for bucket in sorted(sums, key=self._first_use.__getitem__)
        )
        self._scaling.advance(total, self._report)  # the next step may stream from now on
        yield from self._apply_allowed()

    def _apply_allowed(self) -> Iterator[Envelope]:
        """Apply pending updates while they are allowed; yield what may leave after each."""
        yield from self._take_credits()
        while self._pending and self._commitment.allows(self._pending[0].step):
            yield from self._apply(self._pending.pop(0))
            yield from self._take_credits()
            yield from self._stream()

    def _take_credits(self) -> Iterator[Envelope]:
        """Yield the credits that are due."""
        yield from self._credits
        self._credits.clear()

    def _share(self, pending: PendingUpdate) -> Iterator[Envelope]:
        """Yield the gradients of an update for the replica, if there is one."""
        if self._replica is None:
            return
        bucket, flat = pending.bucket, pending.whole.flat
        if pending.is_skipped:
            yield self.envelope(self._replica, UpdateSkipped(pending.step, bucket))
            return
        slab = self.role.context.arena.allocate(flat.nbytes)
        with self.role.context.cores.lease():
            slab.view(torch.float32).copy_(flat)
        self._lent[pending.step, bucket] = slab
        ready = UpdateReady(pending.step, bucket, pending.applied, slab)
        yield self.envelope(self._replica, ready)

    def _apply(self, pending: PendingUpdate) -> Iterator[Envelope]:
        """Apply the optimizer to the parameters of a bucket."""
        step, index, whole = pending.step, pending.bucket, pending.whole
        if pending.coefficient != 1.0:  # as that of a step whose norm is within the limit
            with self._work.doing("norm", step, self._buckets[index]):
                whole.flat.mul_(pending.coefficient)
        yield from self._share(pending)
        update = self.role.store.update_of(pending.applied)
        gradients = self._collector.gradients(index, whole, update)
        with self._work.doing("update", step, self._buckets[index]):
            weights = self.role.store.weights
            self._notes.before_update(step, weights, gradients)
            if not pending.is_skipped:
                self._commitment.note_begin(step)
                if self.attempt:
                    self.role.journal.record(step, self._buckets[index].changed)
                seen = self._collector.pruned(index, whole, update)
                self._watcher.before_update(step, weights, seen)
                self.role.store.update(gradients, pending.applied)
                self._watcher.after_update(step, weights, gradients)
        if not self._pending:  # otherwise the next cast decides
            self.role.store.expect(self._next_update[index])
        whole.release()
        self._streamer.note_update(self._buckets[index].changed, step)
        self._updates_left -= len(gradients)
        for target, done in self._commitment.note_updates(step, len(gradients)):
            yield self.envelope(target, done)
