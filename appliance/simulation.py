"""Time without values: what the stated machine takes for a step, for any number of systems.

The same clock as in a functional run walks the same schedule, so both agree to the picosecond; but
there are no rooms, no weights and no data. Equal rounds are walked once for all cluster sizes of
equal depth, which makes a curve over hundreds of sizes a matter of milliseconds.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from appliance.clock import ClusterClock
from appliance.round_memo import RoundMemo
from appliance.timetable import Timetable
from memoryx.optim.cost import NO_UPDATE, UpdateCost
from wsc.compiler.scale import ScalableProgram
from wsc.core.program import plan_streams
from wsc.timing.attribution import StepTiming, samples_per_s
from wsc.timing.cost import ARITHMETIC_KINDS
from wsc.timing.hardware import MachineSpec
from wsc.timing.placement import Placement, place_on_wafer
from wsc.timing.stalls import StreamCheck, check_streams

SETTLING_STEPS = 4
"""A step is as long as the one before at the latest by then; if not, the last one is taken."""


@dataclass(frozen=True)
class Prediction:
    """One cluster size: a step once the machine has settled."""

    num_csx: int
    micro_batch_size: int
    timing: StepTiming
    arithmetic_flops: int  # of the whole step, matrix products and attention

    @property
    def samples_per_s(self) -> float:
        return samples_per_s([self.timing])

    @property
    def flops_per_s(self) -> float:
        """Operations of matrix products and attention per second, over all systems."""
        return self.arithmetic_flops * self.samples_per_s / self.timing.batch_size


@dataclass(frozen=True)
class Simulator:
    """A step of one model, on clusters of one kind of machine.

    ``update`` and ``clips_by_norm`` are as for Timetable. ``record``ing clocks
    are made by ``clock``; predictions share what they walk.
    """

    program: ScalableProgram
    machine: MachineSpec
    num_servers: int = 1
    update: UpdateCost = NO_UPDATE
    clips_by_norm: bool = False
    _timetables: dict[int, Timetable] = field(default_factory=dict, repr=False)
    _memo: RoundMemo = field(default_factory=RoundMemo, repr=False)

    def predict(self, batch_size: int, micro_batch_size: int, num_csx: int) -> Prediction:
        """A step of ``batch_size`` samples in all, cut into micro-batches that divide it."""
        timetable = self.timetable(batch_size, micro_batch_size)
        clock = self.clock(timetable, num_csx)
        timing = clock.step(timetable.program.mode, 1)
        for step in range(2, SETTLING_STEPS + 1):
            before, timing = timing, clock.step(timetable.program.mode, step)
            if timing.duration_ps == before.duration_ps:
                break
        flops = sum(
            work.flops
            for segment in timetable.program.segments
            for work in segment.work
            if work.kind in ARITHMETIC_KINDS
        )
        total = flops * timetable.program.num_micro_batches
        return Prediction(num_csx, micro_batch_size, timing, total)

    def streams(self, batch_size: int, micro_batch_size: int) -> tuple[StreamCheck, ...]:
        """Whether weights and gradients keep up with each layer."""
        timetable = self.timetable(batch_size, micro_batch_size)
        return check_streams(timetable.program, timetable.plan, timetable.costs, self.machine)

    def placement(self, micro_batch_size: int) -> Placement:
        """Where one micro-batch lies, and what is recomputed for it.

        Raises ApplianceResourceExhausted if it does not fit the wafer.
        """
        return place_on_wafer(self.program.at(micro_batch_size, 1), self.machine.system)

    def clock(self, timetable: Timetable, num_csx: int, record: bool = False) -> ClusterClock:
        """A clock at the start of its first step."""
        clock = ClusterClock(
            self.machine, num_csx, self.num_servers, record=record, memo=self._memo
        )
        clock.follow(timetable)
        return clock

    def timetable(self, batch_size: int, micro_batch_size: int) -> Timetable:
        """The step at one micro-batch size, cut from a batch."""
        if micro_batch_size not in self._timetables:
            program = self.placement(micro_batch_size).program
            self._timetables[micro_batch_size] = Timetable.of(
                program,
                plan_streams(program, self.num_servers),
                self.machine,
                update=self.update,
                clips_by_norm=self.clips_by_norm,
            )
        return self._timetables[micro_batch_size].dealt(batch_size // micro_batch_size)
