"""A broadcast-reduce node of SwarmX: relays weights down, merges gradient siblings on the way up.

On the way down the payload is not touched: children read the slab that the server wrote, and the
switch counts their credits. On the way up it adds subtrees that are siblings in the reduce order
and forwards the others unchanged, without a copy.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from waferstream.core.messages.messages import (
    Envelope,
    GradientReady,
    GradientReleased,
    WeightsReady,
    WeightsReleased,
)
from waferstream.core.messages.partial_sum import Credit, Operands, PartialSum, one_by_one
from waferstream.core.messages.reduce_order import Merger, Subtree
from waferstream.core.program.program import ProgramKind
from waferstream.core.program.stream_plan import Bucket
from waferstream.core.roles.activities import NOWHERE, ActivityLog, Interval, Place, place_of
from waferstream.core.roles.commands import Install
from waferstream.core.roles.installation import Installation
from waferstream.core.roles.names import server_name, switch_name
from waferstream.core.roles.role import (
    Command,
    Job,
    JobState,
    Report,
    RoleContext,
    Waiting,
    not_taken,
)
from waferstream.numerics.precision import DTYPES

BucketKey = tuple[int, int, int]  # step, round, bucket


@dataclass(frozen=True)
class SwitchSpec:
    """How to build a switch: ``nodes`` are the CS nodes below, ``parent`` is None at the root."""

    index: int
    parent: str | None
    children: tuple[str, ...]
    nodes: range

    @property
    def name(self) -> str:
        return switch_name(self.index)

    def build(self, context: RoleContext) -> Switch:
        return Switch(self, context)


@dataclass
class _Reduction:
    """The subtrees of one gradient bucket in one round, until all children have sent theirs."""

    merger: Merger[PartialSum]
    micro_batches_left: int


class Switch:
    """The role of one switch."""

    def __init__(self, spec: SwitchSpec, context: RoleContext) -> None:
        self.name = spec.name
        self.spec = spec
        self.context = context
        self.installed: dict[ProgramKind, Installation] = {}

    def do(self, command: Command[Any]) -> Any:
        """Do what a command says."""
        match command:
            case Install(installation):
                self.installed[installation.kind] = installation
            case _:
                raise not_taken(self.name, command)

    def begin(self, job: Job) -> SwitchJob:
        return SwitchJob(self, job)


class SwitchJob(JobState[Switch]):
    """One job of a switch: the weights on their way down, the gradients on their way up."""

    def __init__(self, role: Switch, job: Job) -> None:
        super().__init__(role)
        self._kind = job.kind
        plan = role.installed[job.kind].plan
        self._rounds = job.rounds_of(role.installed[job.kind].rounds)
        self._owners = tuple(bucket.server for bucket in plan.gradients)
        active = sum(bool(self._below(index)) for index in range(self._rounds.count))
        self._weights_left = len(job.steps) * self._rounds.count * len(plan.weights)
        self._gradients_left = len(job.steps) * active * len(plan.gradients)
        self._readers: dict[BucketKey, int] = {}  # children that have not released the weights
        self._sources: dict[BucketKey, str] = {}  # senders of the weights
        self._reductions: dict[BucketKey, _Reduction] = {}
        self._sent: dict[tuple[BucketKey, Subtree], PartialSum] = {}
        self._credits: list[Envelope] = []
        self._log = ActivityLog(job.trace_limit)
        self._since_ns: dict[tuple[str, BucketKey], int] = {}  # activities that have begun
        self._adds_for: BucketKey = (0, 0, 0)

    def start(self) -> Iterator[Envelope]:
        """Yield nothing: a switch only answers."""
        return iter(())

    def handle(self, envelope: Envelope) -> Iterator[Envelope]:
        match envelope.message:
            case WeightsReady(step, round_index, bucket) as ready:
                children = self.role.spec.children
                self._readers[step, round_index, bucket] = len(children)
                self._sources[step, round_index, bucket] = envelope.source
                self._begin("broadcast", (step, round_index, bucket))
                yield from (self.envelope(child, ready) for child in children)
            case WeightsReleased(step, round_index, bucket) as released:
                yield from self._release_weights((step, round_index, bucket), released)
            case GradientReady() as ready:
                yield from self._reduce(envelope.source, ready)
            case GradientReleased(step, round_index, bucket, subtree):
                self._sent.pop(((step, round_index, bucket), subtree)).release()
                yield from self._pop_credits()
            case message:
                raise self.refusal(message)

    @property
    def finished(self) -> bool:
        return self._weights_left == 0 and self._gradients_left == 0 and not self._sent

    def report(self) -> Report:
        log = self._log
        return Report(self.role.name, intervals=log.intervals, num_lost=log.num_lost)

    def waits_for(self) -> Waiting:
        children = self.role.spec.children
        if self._readers:
            return Waiting(f"the release of weights of step {min(self._readers)[0]}", children)
        if self._reductions:
            return Waiting(f"gradients of step {min(self._reductions)[0]}", children)
        servers = tuple(server_name(owner) for owner in sorted(set(self._owners)))
        above = servers if self.role.spec.parent is None else (self.role.spec.parent,)
        return Waiting("the release of gradients" if self._sent else "weights", above)

    def _below(self, round_index: int) -> range:
        """Return the micro-batches that the nodes below compute in a round."""
        return self._rounds.of_nodes(round_index, self.role.spec.nodes)

    def _release_weights(self, key: BucketKey, released: WeightsReleased) -> Iterator[Envelope]:
        self._readers[key] -= 1
        if self._readers[key] == 0:
            del self._readers[key]
            self._weights_left -= 1
            self._end("broadcast", key)
            yield self.envelope(self._sources.pop(key), released)

    def _reduce(self, child: str, ready: GradientReady) -> Iterator[Envelope]:
        key = (ready.step, ready.round, ready.bucket)
        total = self._rounds.num_micro_batches
        if key not in self._reductions:
            merger: Merger[PartialSum] = Merger(total, self._add)
            self._reductions[key] = _Reduction(merger, len(self._below(ready.round)))
            self._begin("reduce", key)
        reduction, self._adds_for = self._reductions[key], key
        reduction.merger.offer(ready.subtree, self._borrowed(child, ready))
        reduction.micro_batches_left -= ready.subtree.size(total)
        yield from self._pop_credits()
        if reduction.micro_batches_left == 0:
            del self._reductions[key]
            self._gradients_left -= 1
            above = self.role.spec.parent or server_name(self._owners[ready.bucket])
            for subtree, part in reduction.merger.take():
                self._sent[key, subtree] = part
                yield self.envelope(above, GradientReady(*key, subtree, part.payload))
            self._end("reduce", key)

    def _borrowed(self, child: str, ready: GradientReady) -> PartialSum:
        """Return the sum in a child's payload, which a credit gives back."""
        released = GradientReleased(ready.step, ready.round, ready.bucket, ready.subtree)
        credit = Credit(self.envelope(child, released), self._credits)
        program = self.role.installed[self._kind].program
        dtype = program.dtype_of_sum(ready.subtree.size(self._rounds.num_micro_batches))
        return PartialSum([ready.payload.view(DTYPES[dtype])], ready.payload, on_release=credit)

    def _add(self, left: PartialSum, right: PartialSum) -> PartialSum:
        return left.add(right, self._allocate, self._on_a_core)

    def _allocate(self, like: PartialSum) -> PartialSum:
        slab = self.role.context.arena.allocate(like.flat.numel() * torch.float32.itemsize)
        return PartialSum([slab.view(torch.float32)], slab, is_owned=True, on_release=slab.free)

    def _on_a_core(self, act: Callable[..., object], operands: Operands) -> None:
        place = self._place("add", self._adds_for)[0] if self._log.is_on else NOWHERE
        with self.role.context.cores.lease(), self._log.during("add", place):
            one_by_one(act, operands)

    def _pop_credits(self) -> Iterator[Envelope]:
        yield from self._credits
        self._credits.clear()

    def _begin(self, activity: str, key: BucketKey) -> None:
        """Note when a bucket came, for a trace."""
        if self._log.is_on:
            self._since_ns[activity, key] = time.perf_counter_ns()

    def _end(self, activity: str, key: BucketKey) -> None:
        """Keep the time that a bucket has spent here, for a trace."""
        if self._log.is_on:
            since_ns, end_ns = self._since_ns.pop((activity, key)), time.perf_counter_ns()
            place, bucket = self._place(activity, key)
            detail = f"bucket {bucket.index}"
            self._log.add(Interval(activity, since_ns, end_ns, place, detail, bucket.num_bytes))

    def _place(self, activity: str, key: BucketKey) -> tuple[Place, Bucket]:
        """Return the place of what is done with a bucket, and the bucket."""
        step, round_index, index = key
        installed = self.role.installed[self._kind]
        plan = installed.plan
        bucket = (plan.weights if activity == "broadcast" else plan.gradients)[index]
        return place_of(installed.program, bucket, step, round_index), bucket
