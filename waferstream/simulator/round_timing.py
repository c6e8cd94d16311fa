"""One round of a step on the emulated machine: the weights stream once, forward and backward.

The timing models of the roles say what each piece of work costs and which timelines it occupies.
RoundTiming passes on when each payload is ready, step by step, in the order of the schedule:

    MemoryX           SwarmX             CS systems                 SwarmX        MemoryX
    stream bucket --> broadcast -->  receive_weights
                                     run the segment
                                     release (credit) ----------------------->  next bucket
                                     send_gradient -------------->  reduce -->  collect, update

The effect of a segment step depends on the state of the machine relative to now, and on when its
weights were updated. Layers are alike, so after a few steps the state is as it was one step before,
and no step waits for an update: then the steps left do what that one did, to the picosecond, and
are multiplied instead of executed (simulator.periodicity).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from csnode.timing import NodeTiming
from memoryx.timing import MemoryXTiming
from swarmx.timing import SwarmXTiming
from waferstream.core.program.program import ProgramKind
from waferstream.core.program.schedule import SegmentStep
from waferstream.core.program.stream_plan import Bucket
from waferstream.machine.jitter import Jitter
from waferstream.machine.record import Record
from waferstream.machine.timeline import resume, state_of
from waferstream.simulator.costed_program import CostedProgram
from waferstream.simulator.periodicity import Effect, Passes, Snapshot, run_until_periodic

FEWEST_ALIKE = 6
"""Shorter runs are executed: the state needs a few steps to settle, and comparing takes time."""


@dataclass(frozen=True)
class Round:
    """One round of a step, and how many systems have a micro-batch in it."""

    kind: ProgramKind
    step: int
    index: int
    num_busy: int
    is_last: bool


class RoundTiming:
    """Executes rounds on the timing models of a cluster.

    A ``record`` is complete where ``executes_all`` is set.
    """

    def __init__(
        self,
        node: NodeTiming,
        swarmx: SwarmXTiming,
        memoryx: MemoryXTiming,
        jitter: Jitter,
        record: Record | None = None,
    ) -> None:
        self._node = node
        self._swarmx = swarmx
        self._memoryx = memoryx
        self._jitter = jitter
        self.executes_all = False
        """Whether each step is executed, also those that are like others."""
        self._record = record
        self._resources = (
            *node.stream_resources,
            *swarmx.resources,
            *memoryx.stream_resources,
        )

    def execute(self, costed: CostedProgram, this: Round) -> Passes:
        """Execute a round: one micro-batch on each system that is busy in it."""
        if self._record is not None:
            self._record.enter_round(this.kind, this.step, this.index)
        self._node.receive_batch(costed.input_bytes, costed.load_ps)
        backward_ps = None
        for alike in costed.repeated_runs:
            if backward_ps is None and costed.is_backward(alike[0]):
                backward_ps = self._node.free_ps
            if self.executes_all or len(alike) < FEWEST_ALIKE:
                for step in alike:
                    self._run_step(costed, step, this)
            else:
                self._execute_alike(costed, alike, this)
        if self._record is not None:
            self._record.leave_segment()
        self._node.release_batch()
        computed_ps = self._node.free_ps
        if this.is_last and costed.waits_for_all:
            self._update_all(costed)
        if this.is_last:
            self._node.idle_until("reduce", self._memoryx.updated_ps(costed.first_weights))
        backward_ps = computed_ps if backward_ps is None else backward_ps
        return Passes(computed_ps - backward_ps, self._node.free_ps - computed_ps)

    def _execute_alike(
        self, costed: CostedProgram, alike: Sequence[SegmentStep], this: Round
    ) -> None:
        """Execute steps that differ in nothing but the names of their weights.

        The state does not hold when each parameter was updated. So the steps left are only taken
        to be like the last one if neither it nor they wait for an update.
        """
        could_start = False

        def advance(index: int) -> Snapshot:
            nonlocal could_start
            could_start = self._are_up_to_date(alike[index : index + 1])
            self._run_step(costed, alike[index], this)
            return self._snapshot()

        def may_repeat(index: int) -> bool:
            return could_start and self._are_up_to_date(alike[index + 1 :])

        executed, period = run_until_periodic(advance, len(alike), may_repeat=may_repeat)
        if period:
            one = Effect.between(*executed[-2:])
            last, left = alike[len(executed) - 1], alike[len(executed) :]
            self._skip(one.times(len(left)))
            if _updates(costed, this):
                self._update_alike(last, left, one.duration_ps)

    def _snapshot(self) -> Snapshot:
        now_ps = self._node.free_ps
        state = state_of(self._resources, now_ps, self._floor_ps)
        return Snapshot(now_ps, state, self._node.attribution())

    def _skip(self, effect: Effect) -> None:
        """Account for steps that are not executed."""
        self._node.charge(effect.attribution)
        resume(self._resources, effect.state, self._node.free_ps + effect.duration_ps)

    def _are_up_to_date(self, steps: Sequence[SegmentStep]) -> bool:
        """Return whether no update of these steps' weights is still to come."""
        buckets = (bucket for step in steps for bucket in step.weights)
        return self._memoryx.are_updated(buckets, self._floor_ps)

    @property
    def _floor_ps(self) -> int:
        """Earliest time at which any work of a later step can start."""
        return min(self._node.stream_floor_ps, self._memoryx.floor_ps)

    def _update_alike(self, last: SegmentStep, left: Sequence[SegmentStep], period_ps: int) -> None:
        """Stamp the weights of skipped steps as updated one period after the other."""
        for count, step in enumerate(left, 1):
            for bucket, like in zip(step.gradients, last.gradients, strict=True):
                self._memoryx.update_like(bucket, like, count * period_ps)

    def _run_step(self, costed: CostedProgram, step: SegmentStep, this: Round) -> None:
        if self._record is not None:
            self._record.enter_segment(step.segment)
        for bucket in step.weights:
            self._stream(bucket, this)
        for bucket in step.gradients:
            self._node.wait("reduce", self._memoryx.admit(bucket))
        factor = self._jitter.kernel(this.step, this.index, step.segment, this.num_busy)
        self._node.run(costed.costs[step.segment], factor, costed.paged[step.segment])
        for bucket in step.weights:
            self._memoryx.release(bucket, self._node.free_ps)
        for bucket in step.gradients:
            self._reduce(costed, bucket, this)

    def _stream(self, bucket: Bucket, this: Round) -> None:
        sent = self._memoryx.stream(bucket)
        factor = self._link_factor("down", bucket, this)
        arrived = self._swarmx.broadcast(sent, bucket.moved_bytes, factor)
        updated_ps = self._memoryx.updated_ps(bucket.names)
        self._node.receive_weights(bucket, arrived, updated_ps)

    def _reduce(self, costed: CostedProgram, bucket: Bucket, this: Round) -> None:
        sent = self._node.send_gradient(bucket)
        factor = self._link_factor("up", bucket, this)
        summed = self._swarmx.reduce(sent, bucket.moved_bytes, factor)
        added_ps = self._memoryx.collect(bucket, summed)
        if _updates(costed, this):
            mask_bytes = costed.sparsity.mask_bytes_of(bucket)
            self._memoryx.update(bucket, added_ps, costed.update, mask_bytes)

    def _link_factor(self, direction: str, bucket: Bucket, this: Round) -> float:
        """Return the time that a bucket takes on the slowest link over that on a uniform one."""
        return self._jitter.transfer(direction, this.step, this.index, bucket.index, this.num_busy)

    def _update_all(self, costed: CostedProgram) -> None:
        """Update all parameters, once all servers have summed all gradients."""
        summed_ps = self._memoryx.free_ps
        for step in costed.schedule:
            if self._record is not None:
                self._record.enter_segment(step.segment)
            for bucket in step.gradients:
                mask_bytes = costed.sparsity.mask_bytes_of(bucket)
                self._memoryx.update(bucket, summed_ps, costed.update, mask_bytes)
        if self._record is not None:
            self._record.leave_segment()


def _updates(costed: CostedProgram, this: Round) -> bool:
    """Return whether weights are updated as soon as their own gradients are summed."""
    return this.is_last and not costed.waits_for_all
