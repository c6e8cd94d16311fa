"""The emulated clock of a whole cluster: what the stated machine would take for a step.

Values and time are two planes over one static schedule. The roles compute values as fast as this
computer or Ray cluster allows, several micro-batches side by side; the emulated machine processes
them one after the other per CS system. Each role therefore has a *clock twin* (memoryx.timing,
swarmx.timing, csnode.timing) that says what its work costs and which timelines it occupies. This
module wires the twins together and walks the very same action lists as the roles, in schedule
order, passing on when each payload is ready.

No message, thread or measured time enters, so every kind of cluster agrees to the picosecond, and
a simulation without values is the same walk. State persists from step to step: weights of the next
step stream ahead as far as updates and credits allow.

Jitter (timing.jitter) stretches kernels and transfers by factors that depend on step and round,
so a machine with jitter is walked round by round. Stragglers are slow by the same factor always, so
their rounds are remembered like those of an even machine.

In one round every system computes at most one micro-batch (``Rounds`` with one lane), whatever
number of lanes the host uses. Systems that compute in the same round keep the same time, so the
cost of a walk does not depend on their number.
"""

from __future__ import annotations

from dataclasses import dataclass

from csnode.timing import NodeTiming
from memoryx.timing import MemoryXTiming
from simulator.costed_program import CostedProgram
from simulator.round_cache import RoundKey, RoundMemo, Walked
from simulator.round_timing import Round, RoundWalk
from swarmx.timing import SwarmXTiming
from timing.attribution import StepTiming, samples_per_s
from timing.hardware import MachineSpec
from timing.jitter import Jitter
from timing.timeline import Occupancy, State, resume, state_of
from wsc.core.program import Mode
from wsc.core.rounds import Rounds
from wsc.core.units import format_ps, format_rate


@dataclass(frozen=True)
class _Moment:
    """Where the machine stands, if its resources have not been told yet."""

    now_ps: int
    state: State


class ClusterTiming:
    """Advances step by step; times are picoseconds since the first step began.

    With ``record``, ``occupancies`` lists every activity. Clocks of equal machines that differ in
    the number of systems alone may share a ``memo``; then they also share what they have walked.
    """

    def __init__(
        self,
        machine: MachineSpec,
        num_nodes: int,
        num_servers: int,
        *,
        record: bool = False,
        memo: RoundMemo | None = None,
    ) -> None:
        self.machine = machine
        self.occupancies: list[Occupancy] = []
        log = self.occupancies if record else None
        self._num_nodes = num_nodes
        self._record = record
        self._jitter = Jitter(machine.jitter)
        self._walks_all = record or machine.jitter.varies
        self._node = NodeTiming(machine.system, machine.input, log)
        self._swarmx = SwarmXTiming(machine.swarmx, num_nodes, log, machine.jitter)
        self._memoryx = MemoryXTiming(
            machine.memoryx, num_servers, self._swarmx.latency_ps, log, machine.jitter
        )
        self._walk = RoundWalk(
            self._node, self._swarmx, self._memoryx, self._jitter, self._walks_all
        )
        self._resources = (
            *self._node.resources,
            *self._swarmx.resources,
            *self._memoryx.resources,
        )
        self._memo = RoundMemo() if memo is None else memo
        self._ahead: _Moment | None = None
        self._costed_programs: dict[Mode, CostedProgram] = {}

    def follow(self, costed: CostedProgram) -> None:
        """Get ready to walk a program whose costed was made for ``machine``."""
        self._catch_up()
        names = [spec.name for spec in costed.program.parameters]
        self._memoryx.serve(names, costed.plan.weights)
        self._costed_programs[costed.program.mode] = costed

    def step(self, mode: Mode, step: int) -> StepTiming:
        """Let the machine do one step and say how long it took and why."""
        costed = self._costed_programs[mode]
        self._memoryx.hold(costed.tiers)
        start_ps = self._now_ps
        self._node.forget()
        rounds = Rounds(costed.program.num_micro_batches, self._num_nodes)
        self._rounds_before_last(costed, step, rounds)
        before_last_round = self._node.attribution()
        last = self._of_step(step, rounds, rounds.count - 1)
        self._advance(costed, last)
        end_ps = self._now_ps
        if self._record:
            self.occupancies.append(Occupancy("steps", f"{mode} {step}", start_ps, end_ps))
        return StepTiming(
            step=step,
            start_ps=start_ps,
            end_ps=end_ps,
            batch_size=costed.program.batch_size,
            num_busy=last.num_busy,
            attribution=self._node.attribution(),
            spare=before_last_round.then_idle(end_ps - start_ps),
        )

    def _of_step(self, step: int, rounds: Rounds, index: int) -> Round:
        num_busy = len(rounds.of_nodes(index, range(self._num_nodes)))
        return Round(step, index, num_busy, index == rounds.count - 1)

    def _rounds_before_last(self, costed: CostedProgram, step: int, rounds: Rounds) -> None:
        """Rounds that update nothing; as soon as one leaves the state it found, so do the rest."""
        for index in range(rounds.count - 1):
            walked = self._advance(costed, self._of_step(step, rounds, index))
            if walked is not None and walked.is_periodic:
                left = rounds.count - 2 - index
                self._node.charge(walked.attribution.times(left))
                self._ahead = _Moment(self._now_ps + left * walked.duration_ps, walked.state)
                return

    def _advance(self, costed: CostedProgram, this: Round) -> Walked | None:
        """Do one round, walking it only if no equal one was; None if each must be walked."""
        if self._walks_all:
            self._walk.walk(costed, this)
            return None
        state, start_ps = self.state, self._now_ps
        key = RoundKey(
            costed.name,
            self._swarmx.latency_ps,
            self._swarmx.bytes_per_s,
            self._jitter.kernel(this.step, this.index, 0, this.num_busy),
            this.is_last,
            state,
        )
        walked = self._memo.walked.get(key)
        if walked is None:
            self._catch_up()
            before = self._node.attribution()
            self._walk.walk(costed, this)
            spent = self._node.attribution().since(before)
            after = self.state
            walked = Walked(self._node.free_ps - start_ps, spent, after, after == state)
            self._memo.walked[key] = walked
        else:
            self._node.charge(walked.attribution)
        self._ahead = _Moment(start_ps + walked.duration_ps, walked.state)
        return walked

    @property
    def _now_ps(self) -> int:
        return self._node.free_ps if self._ahead is None else self._ahead.now_ps

    @property
    def state(self) -> State:
        """What the next step depends on, jitter apart: where every resource is, from now on."""
        if self._ahead is not None:
            return self._ahead.state
        floor_ps = min(self._node.floor_ps, self._memoryx.floor_ps)
        return state_of(self._resources, self._node.free_ps, floor_ps)

    def _catch_up(self) -> None:
        """Tell the resources where rounds that were not walked have brought the machine."""
        if self._ahead is not None:
            resume(self._resources, self._ahead.state, self._ahead.now_ps)
            self._ahead = None


def prediction(machine: MachineSpec, num_nodes: int, timing: StepTiming) -> str:
    """One line for people: rate, step time, and where the time goes.

    ``"Emulated 4 x CS-2: 12.3 samples/s, 5.20 s per step (compute 81%, overhead 19%)"``
    """
    shares = sorted(timing.attribution.shares().items(), key=lambda item: -item[1])
    causes = ", ".join(f"{cause} {share:.0%}" for cause, share in shares if share >= 0.005)
    return (
        f"Emulated {num_nodes} x {machine.system.name}: {format_rate(samples_per_s([timing]))} "
        f"samples/s, {format_ps(timing.duration_ps)} per step ({causes})"
    )
