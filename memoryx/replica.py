"""The replica of a weight server: it applies the same updates, so its weights have the same bits.

A weight server sends its replica the gradients of each bucket as it applies them: unscaled and
clipped, with the number of the update, and what all servers have agreed on for a step. The replica
applies the optimizer's rule to them (state-machine replication: Schneider, ACM Computing Surveys
22(4), 1990). It keeps the results of finished steps as servers do, and no server updates step t + 1
before all replicas have done step t, so that the survivors of any loss are at most one step apart
(memoryx.job.commitment).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from memoryx.holder import Holder
from memoryx.job.bucket_work import BucketWork
from memoryx.job.commitment import Commitment
from memoryx.job.gradient_changes import LossScaling
from memoryx.memory.flash_spec import FlashSpec
from memoryx.sparsity.masks import SparseStreams
from waferstream.core.messages.messages import (
    Envelope,
    NormTotal,
    StepDone,
    UpdateReady,
    UpdateReleased,
    UpdateSkipped,
)
from waferstream.core.program.program import TensorSpec
from waferstream.core.program.schedule import collected_by
from waferstream.core.roles.names import replica_name, server_name
from waferstream.core.roles.role import Job, JobState, Progress, Report, RoleContext, Waiting


@dataclass(frozen=True)
class ReplicaSpec:
    """How to build the replica of weight server ``index``."""

    index: int
    num_servers: int
    parameters: tuple[TensorSpec, ...]  # of the whole model
    flash: FlashSpec | None = None

    @property
    def name(self) -> str:
        return replica_name(self.index)

    @property
    def server(self) -> str:
        """The server whose updates it repeats."""
        return server_name(self.index)

    def build(self, context: RoleContext) -> Replica:
        return Replica(self, context)


class Replica(Holder):
    """The role of one replica."""

    def __init__(self, spec: ReplicaSpec, context: RoleContext) -> None:
        super().__init__(
            spec.name, spec.index, spec.num_servers, spec.parameters, context.disk, spec.flash
        )
        self.spec = spec
        self.context = context

    def begin(self, job: Job) -> ReplicaJob:
        begun = ReplicaJob(self, job)
        self.note_begin(begun, job)
        return begun


class ReplicaJob(JobState[Replica]):
    """One job of a replica: the updates that its server has announced."""

    def __init__(self, role: Replica, job: Job) -> None:
        super().__init__(role)
        installed = role.installed[job.kind]
        collected = collected_by(installed.schedule, role.spec.index)
        self.attempt = job.attempt
        self._buckets = {bucket.index: bucket for bucket in collected}
        num_updates = sum(len(bucket.names) for bucket in collected)
        self._sparse = SparseStreams(role.store.masks, installed.program.stream_dtype)
        self._updates_left = len(job.steps) * num_updates
        self._commitment = Commitment(role.name, installed, job, num_updates)
        self._pending: list[UpdateReady | UpdateSkipped] = []
        self._report = Report(role.name)
        cores = role.context.cores
        self._work = BucketWork(installed.program, cores, self._report.intervals)
        self._scaling = LossScaling(installed.optimizer, job)
        self._clips_by_norm = installed.optimizer is not None and installed.optimizer.clips_by_norm

    def start(self) -> Iterator[Envelope]:
        """Yield nothing: a replica only follows."""
        return iter(())

    def handle(self, envelope: Envelope) -> Iterator[Envelope]:
        match envelope.message:
            case UpdateReady() | UpdateSkipped() as update:
                self._pending.append(update)
            case NormTotal() as total:
                if self._clips_by_norm:
                    self._report.norms[total.step] = total.norm
                self._scaling.advance(total, self._report)
            case StepDone() as done:
                self._commitment.note(envelope.source, done)
            case message:
                raise self.refusal(message)
        while self._pending and self._commitment.allows(self._pending[0].step):
            yield from self._follow(self._pending.pop(0))

    @property
    def finished(self) -> bool:
        return self._updates_left == 0 and self._commitment.finished

    def report(self) -> Report:
        return self._report

    def waits_for(self) -> Waiting:
        if self._pending:
            return Waiting("the end of a step", self._commitment.behind(self._pending[0].step))
        return Waiting("updates", (self.role.spec.server,))

    def progress(self) -> Progress:
        """Return how far the job is."""
        return self._commitment.progress(self._report)

    def steps_held(self) -> frozenset[int]:
        """Return the steps after which the weights stand."""
        return self._commitment.steps_held()

    def _follow(self, update: UpdateReady | UpdateSkipped) -> Iterator[Envelope]:
        """Do with one bucket what the server did."""
        names = self._buckets[update.bucket].names
        if isinstance(update, UpdateReady):
            self._apply(update)
            released = UpdateReleased(update.step, update.bucket)
            yield self.envelope(self.role.spec.server, released)
        self._updates_left -= len(names)
        for target, done in self._commitment.note_updates(update.step, len(names)):
            yield self.envelope(target, done)

    def _apply(self, update: UpdateReady) -> None:
        store, bucket = self.role.store, self._buckets[update.bucket]
        gradients = self._sparse.received(
            bucket,
            update.payload.view(torch.float32),
            store.update_of(update.applied),
        )
        self._commitment.note_begin(update.step)
        with self._work.doing("update", update.step, bucket):
            self.role.journal.record(update.step, bucket.changed)
            store.update(gradients, update.applied)
