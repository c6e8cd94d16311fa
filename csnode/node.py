"""A CS system: holds activations, runs kernels, and holds weights only while they pass through.

The role keeps the installed programs; its job keeps the messages that have arrived and the
position in the schedule (waferstream.core.program.schedule), and advances as far as they allow.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from csnode.corruption import corrupt_next_gradient
from csnode.devices import DeviceName
from csnode.devices.device import device_of
from csnode.engine.spec import TORCH, EngineSpec
from csnode.executor import Executor
from csnode.gradients import GradientSum
from csnode.lanes import Lanes, Running
from csnode.micro_batch import MicroBatch, SramLedger
from csnode.results import NotFinite, Voting, not_finite, note_results, with_results
from csnode.stash import StashExchange
from waferstream.core.messages.messages import (
    BatchReady,
    BatchReleased,
    Envelope,
    GradientReady,
    GradientReleased,
    Message,
    StashReady,
    StashReleased,
    StepDone,
    WeightsReady,
    WeightsReleased,
)
from waferstream.core.messages.payload import Payload
from waferstream.core.messages.reduce_order import Subtree
from waferstream.core.program.program import ProgramKind
from waferstream.core.program.schedule import SegmentStep
from waferstream.core.roles.commands import CorruptNextGradient, Install
from waferstream.core.roles.names import node_name
from waferstream.core.roles.role import (
    Command,
    Job,
    JobState,
    Report,
    RoleContext,
    Waiting,
    not_taken,
)


@dataclass(frozen=True)
class NodeSpec:
    """How to build a CS node. ``parent`` is its switch, ``worker`` its input worker."""

    index: int
    parent: str
    worker: str
    seed: int
    lanes: int
    sram_bytes: int
    engine: EngineSpec = TORCH
    device: DeviceName = "cpu"

    @property
    def name(self) -> str:
        return node_name(self.index)

    def build(self, context: RoleContext) -> CSNode:
        return CSNode(self, context)


class CSNode:
    """The role of one CS system."""

    def __init__(self, spec: NodeSpec, context: RoleContext) -> None:
        self.name = spec.name
        self.spec = spec
        self.executors: dict[ProgramKind, Executor] = {}
        self._context = context
        self._device = device_of(spec.device, spec.index, context)
        # One lane gives a staged device the work of all micro-batches, in order.
        self._lanes = Lanes(1 if self._device.is_staged else spec.lanes, f"{self.name}-lane")
        # Segments: with two, neither lanes nor device wait for the end of one. With three, lanes
        # pass short segments (embeddings) while the last micro-batch is still in a long one.
        self.most_running = 2 if self._device.is_staged else 3 if spec.lanes > 1 else 1

    def do(self, command: Command[Any]) -> Any:
        """Do what a command says."""
        match command:
            case Install(installation):
                self.executors[installation.kind] = Executor(
                    *(installation, self.spec.seed, self._context),
                    *(self._lanes, self._device, self.spec.engine),
                )
            case CorruptNextGradient():
                corrupt_next_gradient(self.executors)
            case _:
                raise not_taken(self.name, command)

    def begin(self, job: Job) -> NodeJob:
        return NodeJob(self, job)


class RoundOfStep(NamedTuple):
    """One round of one step."""

    step: int
    round: int


class NodeJob(JobState[CSNode]):
    """One job of a CS node: its position in the schedule, and what has arrived for later.

    In each round the node takes its micro-batches, then executes one segment step after the other.
    It waits where the inputs of a micro-batch or the weights of a segment are missing:

        round 0: batch batch | step 0  step 1  ...  step n | round 1: batch ...
                 ^ BatchReady  ^ WeightsReady
    """

    def __init__(self, role: CSNode, job: Job) -> None:
        super().__init__(role)
        self._kind = job.kind
        self._last_step = job.last_step
        self._is_protected = job.is_protected
        self._state = dict(job.state)
        # The position: round of a step, segment steps executed in it, micro-batches taken.
        self._now = RoundOfStep(job.first_step, 0)
        self._num_executed = 0
        self._running: deque[Running] = deque()  # on the lanes, the oldest first
        self._batches: list[MicroBatch] = []
        self._is_verified = job.verification.is_on
        self._executor.begin(job)
        self._voting = Voting(role.spec.index, job.verification, self._executor.rounds)
        self._needed = self._micro_batches()
        # What has arrived and is not used up, and the slabs that others are still reading.
        self._weights: dict[RoundOfStep, dict[int, Payload]] = {}
        self._loss_scales: dict[int, float] = {}  # by step, where it is dynamic
        self._inputs: dict[tuple[int, int], BatchReady] = {}
        self._sent: dict[tuple[RoundOfStep, int, Subtree], GradientSum] = {}
        self._stash = StashExchange(self._executor.trips)
        self._sram = SramLedger(role.name, role.spec.sram_bytes)
        self._finite_to = job.watch.finite_to
        self._report = Report(role.name)

    def start(self) -> Iterator[Envelope]:
        yield from self._advance()

    def handle(self, envelope: Envelope) -> Iterator[Envelope]:
        match envelope.message:
            case WeightsReady(step, round_index, bucket, payload, loss_scale):
                if loss_scale is not None:
                    self._loss_scales[step] = loss_scale
                self._sram.change("weights", payload.num_bytes)
                self._weights.setdefault(RoundOfStep(step, round_index), {})[bucket] = payload
            case BatchReady(step, micro_batch) as ready:
                self._inputs[step, micro_batch] = ready
            case GradientReleased(step, round_index, bucket, subtree):
                sent = self._sent.pop((RoundOfStep(step, round_index), bucket, subtree))
                self._sram.change("gradients", -sent.bucket.num_bytes)
                sent.part.release()
            case StashReady(_, micro_batch, trip, payload):
                self._stash.note((micro_batch, trip), payload)
            case StashReleased(_, micro_batch, trip):
                self._stash.release((micro_batch, trip))
            case message:
                raise self.refusal(message)
        yield from self._advance()

    @property
    def is_working(self) -> bool:
        return bool(self._running)

    def work(self) -> Iterator[Envelope]:
        self._running[0].wait()
        yield from self._advance()

    def leave(self) -> None:
        for running in reversed(self._running):  # a free lane must not begin the next segment
            running.cancel()
        for running in self._running:
            running.wait()

    @property
    def finished(self) -> bool:
        return self._now.step > self._last_step and not self._sent

    def report(self) -> Report:
        self._report.peak_bytes = dict(self._sram.peak_bytes)
        return self._report

    def waits_for(self) -> Waiting:
        step, round_index = self._now
        if step > self._last_step:
            return Waiting("the release of gradients", (self.role.spec.parent,))
        if len(self._batches) < len(self._needed):
            index = self._needed[len(self._batches)]
            return Waiting(f"micro-batch {index} of step {step}", (self.role.spec.worker,))
        if servers := self._stash.missing(self._position, self._indices):
            return Waiting(f"activations of step {step}, round {round_index}", servers)
        return Waiting(f"weights of step {step}, round {round_index}", (self.role.spec.parent,))

    @property
    def _position(self) -> int:
        """The segment step that starts next."""
        return self._num_executed + len(self._running)

    @property
    def _indices(self) -> list[int]:
        """The micro-batches of the round."""
        return [batch.index for batch in self._batches]

    def _envelopes(self, messages: Iterable[tuple[str, Message]]) -> Iterator[Envelope]:
        return (self.envelope(target, message) for target, message in messages)

    @property
    def _executor(self) -> Executor:
        return self.role.executors[self._kind]

    @property
    def _own(self) -> list[MicroBatch]:
        """The node's own micro-batches, which come before those that it computes for a vote."""
        return self._batches[: len(self._batches) - self._voting.num_micro_batches]

    def _micro_batches(self) -> tuple[int, ...]:
        """Return the micro-batches that the node computes in the round that begins."""
        own = self._executor.rounds.of_node(self._now.round, self.role.spec.index)
        return (*own, *self._voting.begin(*self._now))

    def _advance(self) -> Iterator[Envelope]:
        """Execute the schedule until the job ends, a message is missing or the lanes are busy."""
        while self._now.step <= self._last_step:
            yield from self._envelopes(self._stash.ask(self._now.step, self._position))
            if len(self._batches) < len(self._needed):
                index = self._needed[len(self._batches)]
                if (self._now.step, index) not in self._inputs:
                    return
                yield self._take_batch(self._now.step, index)
            elif (segment_step := self._next_step()) is not None:
                yield from self._start(segment_step)
            elif self._running and self._running[0].is_done:
                yield from self._finish(self._running.popleft())
                self._num_executed += 1
            elif self._num_executed == len(self._executor.schedule):
                yield from self._end_round()
            else:
                return

    def _next_step(self) -> SegmentStep | None:
        """Return the segment step that may start now: all it reads is here, and lanes need work."""
        schedule, arrived = self._executor.schedule, self._weights.get(self._now, {})
        position = self._position
        if position == len(schedule) or len(self._running) == self.role.most_running:
            return None
        step = schedule[position]
        if self._stash.missing(position, self._indices):
            return None
        return step if all(bucket.index in arrived for bucket in step.weights) else None

    def _take_batch(self, step: int, index: int) -> Envelope:
        ready = self._inputs.pop((step, index))
        batch = self._executor.unpack(step, index, ready.payload, ready.label_weights, self._state)
        self._batches.append(batch)
        return self.envelope(self.role.spec.worker, BatchReleased(step, index))

    def _start(self, step: SegmentStep) -> Iterator[Envelope]:
        """Let the lanes run a segment step whose weights have arrived."""
        running = self._executor.start(
            self._now.step,
            step,
            self._weights.get(self._now, {}),
            self._batches,
            loss_scale=self._loss_scales.get(self._now.step),
            examine=not_finite if self._now.step <= self._finite_to else None,
            after=self._running[-1] if self._running else None,
            back=self._stash.back_before(step.segment, self._indices),
        )
        self._running.append(running)
        if running.has_copied_weights:
            yield from self._release(step)

    def _release(self, step: SegmentStep) -> Iterator[Envelope]:
        """Return the weights of a segment step to their sender."""
        weights = self._weights.get(self._now, {})
        for bucket in step.weights:
            del weights[bucket.index]
            yield self.envelope(self.role.spec.parent, WeightsReleased(*self._now, bucket.index))

    def _finish(self, running: Running) -> Iterator[Envelope]:
        """Release the weights of a segment that has run, and send its gradients."""
        step, executed = running.segment_step, self._executor.finish(running)
        self._report.intervals += executed.intervals
        for batch, tensor in zip(self._own, executed.not_finite, strict=False):
            if tensor is not None:
                found = NotFinite(self._now.step, batch.index, self._num_executed, tensor)
                finding = found.finding(self._executor.segment(step, batch), self.role.name)
                self._report.findings.append(finding)
        self._sram.change("weights", -running.weight_bytes)
        if not running.has_copied_weights:
            yield from self._release(step)
        if step.stashes:
            self._sram.hold("activations", executed.held_bytes)
        yield from self._envelopes(self._stash.take(self._now.step, step.segment, self._indices))
        yield from self._envelopes(self._stash.leave(self._now.step, executed.left))
        self._voting.note(executed.gradients)
        own = executed.gradients.get(self.role.spec.index, ())
        yield from map(self._send_gradient, own)

    def _send_gradient(self, gradient: GradientSum) -> Envelope:
        bucket, subtree, part = gradient
        self._sram.change("gradients", bucket.num_bytes)
        self._sent[self._now, bucket.index, subtree] = gradient
        ready = GradientReady(*self._now, bucket.index, subtree, part.payload)
        return self.envelope(self.role.spec.parent, ready)

    def _end_round(self) -> Iterator[Envelope]:
        is_last_step = self._now.step == self._last_step
        note_results(
            self._report, self._executor.program, self._now.step, self._own, keeps_all=is_last_step
        )
        self._batches = []
        self._sram.hold("activations", 0)
        self._weights.pop(self._now, None)
        self._num_executed = 0
        step, round_index = self._now
        self._voting.end_round()
        is_last = round_index + 1 == self._executor.rounds.count
        if is_last:
            self._loss_scales.pop(step, None)
            if self._is_verified or (self._is_protected and not is_last_step):
                yield from self._done(step)
        self._now = RoundOfStep(step + 1, 0) if is_last else RoundOfStep(step, round_index + 1)
        self._needed = self._micro_batches()

    def _done(self, step: int) -> Iterator[Envelope]:
        """Give votes and results of a step to the weight servers, where they outlive this node."""
        done = StepDone(step, votes=self._voting.take())
        if self._is_protected and step != self._last_step:
            done = with_results(done, self._report)
        for keeper in self._executor.keepers:
            yield self.envelope(keeper, done)
