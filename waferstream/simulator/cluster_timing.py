"""The emulated clock of a whole cluster: the time that the stated machine would take for a step.

Values and time are two planes over one static schedule. The roles compute values as fast as this
computer or Ray cluster allows, several micro-batches side by side; the emulated machine processes
them one after the other per CS system. Each role therefore has a *timing model* (memoryx.timing,
swarmx.timing, csnode.timing) that says what its work costs and which timelines it occupies. This
module connects the models and executes the same schedule as the roles, passing on when each payload
is ready.

No message, thread or measured time enters, so every kind of cluster agrees to the picosecond, and a
simulation without values executes the same schedule. State persists from step to step: weights of
the next step stream ahead as far as updates and credits allow.

    step 1                                    step 2
    | round 0 | round 1 | ... | last round    | round 0 | ...
      no update                 updates         its first weights wait for their updates

Jitter (timing.jitter) scales kernels and transfers by factors that depend on step and round, so on
a machine with jitter every round is executed. Stragglers are slow by the same factor always, so
their rounds are cached like those of a uniform machine.

In one round every system computes at most one micro-batch (``Rounds`` with one lane), whatever
number of lanes the host uses. Systems that compute in the same round keep the same time, so one
timing model stands for all of them, whatever their number.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from csnode.timing import NodeTiming
from memoryx.timing import MemoryXTiming
from swarmx.timing import SwarmXTiming
from waferstream.core.program.program import Program, ProgramKind
from waferstream.core.program.schedule import Rounds
from waferstream.core.units import format_ps, format_rate
from waferstream.machine.attribution import StepTiming
from waferstream.machine.densities import StepSparsity
from waferstream.machine.hardware import MachineSpec
from waferstream.machine.jitter import Jitter
from waferstream.machine.record import Record, SegmentFacts
from waferstream.machine.sram import SramPlan
from waferstream.machine.timeline import State, resume, state_of
from waferstream.simulator.costed_program import CostedProgram
from waferstream.simulator.periodicity import Effect, run_until_periodic
from waferstream.simulator.round_timing import Round, RoundTiming

SPARE = "CS spare systems"
"""The track of a record for systems without a micro-batch in the last round of a step."""


class RoundKey(NamedTuple):
    """All that decides what a round does, on machines that differ in their number of systems alone.

    That number shows in the depth of the tree, and in which stragglers there are: a slow switch
    slows the links, a slow system scales the kernels of the rounds in which it is busy.
    """

    program: str
    latency_ps: int
    link_bytes_per_s: int
    kernel_factor: float
    is_last: bool  # of its step
    state: State


RoundCache = dict[RoundKey, Effect]
"""Effects of the rounds executed so far."""


@dataclass(frozen=True)
class _Moment:
    """Time and state of the machine after rounds that were not executed."""

    now_ps: int
    state: State


class ClusterTiming:
    """Timing model of a cluster: advances step by step, from the start of the first step.

    A ``record`` gets every activity; until it is full, as with jitter, every round is executed.
    Models of machines that differ in the number of systems alone may share a ``cache``:
    a round that one has executed costs the others a look-up.
    """

    def __init__(
        self,
        machine: MachineSpec,
        num_nodes: int,
        num_servers: int,
        *,
        record: Record | None = None,
        cache: RoundCache | None = None,
    ) -> None:
        self.machine = machine
        self.record = record
        self._num_nodes = num_nodes
        self._jitter = Jitter(machine.jitter)
        self._node = NodeTiming(machine, record)
        self._swarmx = SwarmXTiming(machine.swarmx, num_nodes, record, machine.jitter)
        self._memoryx = MemoryXTiming(
            machine.memoryx, num_servers, self._swarmx.latency_ps, record, machine.jitter
        )
        self._rounds = RoundTiming(
            self._node, self._swarmx, self._memoryx, self._jitter, record=record
        )
        self._resources = (
            *self._node.resources,
            *self._swarmx.resources,
            *self._memoryx.resources,
        )
        self._cache: RoundCache = {} if cache is None else cache
        self._ahead: _Moment | None = None
        self._executes_all = False
        self._costed_programs: dict[ProgramKind, CostedProgram] = {}

    def load_program(self, costed: CostedProgram) -> None:
        """Load a program that was costed for ``machine``; ``step`` executes it by its kind."""
        self._catch_up()
        names = [spec.name for spec in costed.program.parameters]
        self._memoryx.serve(names, (bucket for step in costed.schedule for bucket in step.weights))
        self._costed_programs[costed.program.kind] = costed
        if self.record is not None:
            self.record.describe(costed.program.kind, self._facts(costed.program))

    def set_sparsity(self, kind: ProgramKind, sparsity: StepSparsity) -> None:
        """Let the next steps of a program have weights of another sparsity."""
        costed = self._costed_programs[kind]
        if costed.sparsity != sparsity:
            self.load_program(costed.with_sparsity(sparsity, self.machine))

    def step(self, kind: ProgramKind, step: int) -> StepTiming:
        """Execute one step; return how long it takes and where the time goes."""
        costed = self._costed_programs[kind]
        self._memoryx.place_model(costed.tiers)
        start_ps = self._now_ps
        is_recorded = self.record is not None and not self.record.is_full
        self._executes_all = self._rounds.executes_all = is_recorded or self.machine.jitter.varies
        self._node.forget()
        rounds = Rounds(costed.program.num_micro_batches, self._num_nodes)
        self._execute_all_but_last(costed, step, rounds)
        before_last_round = self._node.attribution()
        last = self._of_step(kind, step, rounds, rounds.count - 1)
        if self._executes_all:
            passes = self._rounds.execute(costed, last)
        else:
            passes = self._advance(costed, last).passes
        end_ps = self._now_ps
        if self.record is not None:
            self.record.enter_round(kind, step)
            self.record.add("steps", kind, start_ps, end_ps)
            if last.num_busy < self._num_nodes:
                self.record.add(SPARE, "idle", start_ps + before_last_round.total_ps, end_ps)
        return StepTiming(
            step=step,
            start_ps=start_ps,
            end_ps=end_ps,
            batch_size=costed.program.batch_size,
            num_busy=last.num_busy,
            attribution=self._node.attribution(),
            spare=before_last_round.then_idle(end_ps - start_ps),
            backward_ps=passes.backward_ps,
            update_ps=passes.update_ps,
        )

    def _facts(self, program: Program) -> list[SegmentFacts]:
        """Return the facts about each segment of a program that a trace states."""
        plan, samples = SramPlan.of(program, self.machine), program.micro_batch_size
        held = [moment.footprint.of(samples) for moment in plan.moments]
        return [
            SegmentFacts(segment.layer, segment.phase, activations, buffers)
            for segment, activations, buffers in zip(
                program.segments, held, plan.buffers, strict=True
            )
        ]

    def _of_step(self, kind: ProgramKind, step: int, rounds: Rounds, index: int) -> Round:
        num_busy = len(rounds.of_nodes(index, range(self._num_nodes)))
        return Round(kind, step, index, num_busy, index == rounds.count - 1)

    def _execute_all_but_last(self, costed: CostedProgram, step: int, rounds: Rounds) -> None:
        """Execute the rounds that update no weights, until they leave the state they found."""
        count, at = rounds.count - 1, partial(self._of_step, costed.program.kind, step, rounds)
        if self._executes_all:
            for index in range(count):
                self._rounds.execute(costed, at(index))
            return
        executed, period = run_until_periodic(lambda index: self._advance(costed, at(index)), count)
        if period:
            self._skip(executed[-1].times(count - len(executed)))

    def _advance(self, costed: CostedProgram, this: Round) -> Effect:
        """Do one round; execute it only if none was executed before that found the same state."""
        key = RoundKey(
            costed.name,
            self._swarmx.latency_ps,
            self._swarmx.bytes_per_s,
            self._jitter.kernel(this.step, this.index, 0, this.num_busy),
            this.is_last,
            self.state,
        )
        effect = self._cache.get(key)
        if effect is None:
            effect = self._cache[key] = self._execute(costed, this)
        else:
            self._skip(effect)
        return effect

    def _execute(self, costed: CostedProgram, this: Round) -> Effect:
        self._catch_up()
        start_ps, before = self._now_ps, self._node.attribution()
        passes = self._rounds.execute(costed, this)
        spent = self._node.attribution().since(before)
        effect = Effect(self._now_ps - start_ps, spent, self.state, passes)
        self._ahead = _Moment(self._now_ps, effect.state)
        return effect

    def _skip(self, effect: Effect) -> None:
        """Account for rounds that are not executed."""
        self._node.charge(effect.attribution)
        self._ahead = _Moment(self._now_ps + effect.duration_ps, effect.state)

    @property
    def _now_ps(self) -> int:
        return self._node.free_ps if self._ahead is None else self._ahead.now_ps

    @property
    def state(self) -> State:
        """Everything the next step depends on, jitter apart: times of all resources, from now."""
        if self._ahead is not None:
            return self._ahead.state
        floor_ps = min(self._node.floor_ps, self._memoryx.floor_ps)
        return state_of(self._resources, self._node.free_ps, floor_ps)

    def _catch_up(self) -> None:
        """Set the resources to the state after rounds that were not executed."""
        if self._ahead is not None:
            resume(self._resources, self._ahead.state, self._ahead.now_ps)
            self._ahead = None


def prediction(machine: MachineSpec, num_nodes: int, timing: StepTiming) -> str:
    """Return one line with rate, step time, and where the time goes.

    ``"Emulated 4 x CS-2: 12.3 samples/s, 5.20 s per step (compute 81%, overhead 19%)"``
    """
    shares = sorted(timing.attribution.shares().items(), key=lambda item: -item[1])
    causes = ", ".join(f"{cause} {share:.0%}" for cause, share in shares if share >= 0.005)
    return (
        f"Emulated {num_nodes} x {machine.system.name}: {format_rate(timing.samples_per_s)} "
        f"samples/s, {format_ps(timing.duration_ps)} per step ({causes})"
    )
