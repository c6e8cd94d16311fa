"""The emulated clock of a whole cluster: what the stated machine would take for a step.

Values and time are two planes over one static schedule. The rooms compute values as fast as this
computer or Ray cluster allows, several micro-batches side by side; the emulated machine processes
them one after the other per CS system. Each room therefore has a *clock twin* (memoryx.clock,
swarmx.clock, csnode.clock) that says what its work costs and which timelines it occupies. This
module wires the twins together and walks the very same action lists as the rooms, in schedule
order, passing on when each payload is ready.

No message, thread or measured time enters, so every kind of cluster agrees to the picosecond, and
a simulation without values is the same walk. State persists from step to step: weights of the next
step stream ahead as far as updates and credits allow.

In one round every system computes at most one micro-batch (``Rounds`` with one lane), whatever
number of lanes the host uses. Systems that compute in the same round keep the same time, so the
cost of a walk does not depend on their number.
"""

from __future__ import annotations

from csnode.clock import NodeClock
from memoryx.clock import MemoryXClock
from swarmx.clock import SwarmXClock
from wsc.core.actions import (
    DropActivation,
    DropWeight,
    ReduceGradient,
    RunKernel,
    StashActivation,
    StreamWeight,
    UpdateParameter,
    node_actions,
    server_actions,
)
from wsc.core.program import Mode, Program, Segment, Shard, StreamPlan
from wsc.core.rounds import Rounds
from wsc.core.units import format_ps
from wsc.timing.attribution import StepTiming, samples_per_s
from wsc.timing.cost import segment_ps
from wsc.timing.hardware import MachineSpec, WaferSpec
from wsc.timing.timeline import Occupancy


class ClusterClock:
    """Advances step by step; times are picoseconds since the first step began.

    With ``record``, ``occupancies`` lists every activity.
    """

    def __init__(
        self,
        machine: MachineSpec,
        num_nodes: int,
        num_servers: int,
        *,
        record: bool = False,
    ) -> None:
        self.occupancies: list[Occupancy] = []
        log = self.occupancies if record else None
        self._num_nodes = num_nodes
        self._num_servers = num_servers
        self._wafer = machine.system
        self._record = record
        self._node = NodeClock(machine.system, machine.input, log)
        self._swarmx = SwarmXClock(machine.swarmx, num_nodes, log)
        self._memoryx = MemoryXClock(
            machine.memoryx,
            num_servers,
            self._swarmx.latency_ps,
            log,
        )
        self._schedules: dict[Mode, _Schedule] = {}

    def install(
        self,
        program: Program,
        plan: StreamPlan,
        *,
        state_bytes_per_element: int = 0,
        clips_by_norm: bool = False,
    ) -> None:
        """Get ready to walk a program.

        ``state_bytes_per_element`` is the size of the optimizer's state (Adam in fp32: 8).
        ``clips_by_norm`` says that no parameter is updated before the global gradient norm is
        known, which takes the gradients of all parameters.
        """
        self._schedules[program.mode] = _Schedule(
            program, plan, self._wafer, state_bytes_per_element, clips_by_norm
        )

    def step(self, mode: Mode, step: int) -> StepTiming:
        """Let the machine do one step and say how long it took and why."""
        schedule = self._schedules[mode]
        rounds = Rounds(schedule.program.num_micro_batches, self._num_nodes)
        start_ps = self._node.free_ps
        self._node.forget()
        for _ in range(rounds.count - 1):
            self._round(schedule, is_last=False)
        before_last_round = self._node.attribution()
        self._round(schedule, is_last=True)
        self._node.rest("reduce", self._memoryx.updated_ps(schedule.first_weights))
        end_ps = self._node.free_ps
        if self._record:
            self.occupancies.append(Occupancy("steps", f"{mode} {step}", start_ps, end_ps))
        return StepTiming(
            step=step,
            start_ps=start_ps,
            end_ps=end_ps,
            batch_size=schedule.program.batch_size,
            num_busy=len(rounds.of_nodes(rounds.count - 1, range(self._num_nodes))),
            attribution=self._node.attribution(),
            spare=before_last_round.then_idle(end_ps - start_ps),
        )

    def _round(self, schedule: _Schedule, is_last: bool) -> None:
        """Stream the weights once, forward and again backward, for one micro-batch per system."""
        self._node.receive_batch(schedule.input_bytes)
        for action in schedule.actions:
            match action:
                case StreamWeight(index):
                    self._stream(schedule, schedule.plan.weights[index])
                case RunKernel(index):
                    self._run(schedule, schedule.program.segments[index])
                case DropWeight(index):
                    self._memoryx.release(schedule.plan.weights[index], self._node.free_ps)
                case ReduceGradient(index):
                    updates = is_last and not schedule.clips_by_norm
                    self._reduce(schedule, schedule.plan.gradients[index], updates)
                case StashActivation() | DropActivation():
                    pass  # takes room in SRAM, not time
        self._node.release_batch()
        if is_last and schedule.clips_by_norm:
            self._update_all(schedule)

    def _stream(self, schedule: _Schedule, shard: Shard) -> None:
        label = schedule.label(shard.segment)
        sent = self._memoryx.stream(shard, label)
        arrived = self._swarmx.broadcast(sent, shard.num_bytes, label)
        updated_ps = self._memoryx.updated_ps(shard.names)
        self._node.receive_weights(shard, arrived, updated_ps, label)

    def _run(self, schedule: _Schedule, segment: Segment) -> None:
        for shard in schedule.plan.gradients_by_segment.get(segment.index, ()):
            self._node.wait("reduce", self._memoryx.admit(shard))
        self._node.run(schedule.costs[segment.index], schedule.label(segment.index))

    def _reduce(self, schedule: _Schedule, shard: Shard, updates: bool) -> None:
        label = schedule.label(shard.segment)
        sent = self._node.send_gradient(shard, label)
        summed = self._swarmx.reduce(sent, shard.num_bytes, label)
        added_ps = self._memoryx.collect(shard, summed, label)
        if updates:
            self._memoryx.update(shard, added_ps, schedule.state_bytes, label)

    def _update_all(self, schedule: _Schedule) -> None:
        """Every server updates its parameters, once all servers know all gradients."""
        summed_ps = self._memoryx.free_ps
        for server in range(self._num_servers):
            for action in server_actions(schedule.plan, server, is_last_round=True):
                if isinstance(action, UpdateParameter):
                    shard = schedule.plan.gradients[action.shard]
                    label = schedule.label(shard.segment)
                    self._memoryx.update(shard, summed_ps, schedule.state_bytes, label)


class _Schedule:
    """One program with all that does not change from step to step."""

    def __init__(
        self,
        program: Program,
        plan: StreamPlan,
        wafer: WaferSpec,
        state_bytes: int,
        clips_by_norm: bool,
    ) -> None:
        self.program = program
        self.plan = plan
        self.state_bytes = state_bytes
        self.clips_by_norm = clips_by_norm
        self.actions = node_actions(program, plan)
        self.costs = [segment_ps(segment.work, wafer) for segment in program.segments]
        self.input_bytes = sum(spec.num_bytes for spec in program.inputs)
        self.first_weights = program.segments[0].weights
        self._labels = [f"{segment.layer} {segment.phase}" for segment in program.segments]

    def label(self, segment: int) -> str:
        """What a trace calls the work of a segment."""
        return self._labels[segment]


def prediction(machine: MachineSpec, num_nodes: int, timing: StepTiming) -> str:
    """One line for people: rate, step time, and where the time goes.

    ``"Emulated 4 x CS-2: 12.3 samples/s, 5.20 s per step (compute 81%, overhead 19%)"``
    """
    shares = sorted(timing.attribution.shares().items(), key=lambda item: -item[1])
    causes = ", ".join(f"{cause} {share:.0%}" for cause, share in shares if share >= 0.005)
    return (
        f"Emulated {num_nodes} x {machine.system.name}: {samples_per_s([timing]):.4g} samples/s, "
        f"{format_ps(timing.duration_ps)} per step ({causes})"
    )
