"""Time without values: what the stated machine takes for a step, for any number of systems.

The timing model of a functional run executes the same schedule, so both agree to the picosecond;
but there are no roles, no weights and no data. Equal rounds are executed once for all cluster sizes
of equal tree depth, so a curve over hundreds of sizes takes well under a second.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

from memoryx.optim.cost import (
    NO_UPDATE,
    UpdateCost,
    update_cost,
    waits_for_all,
)
from memoryx.sparsity.step_sparsity import sparsity_by_optimizer
from swarmx.topology import swarmx_nodes, topology_of
from waferstream.compiler.derivation.scale import ScalableProgram
from waferstream.core.optimizer import OptimizerSpec
from waferstream.core.program.micro_batches import Cut
from waferstream.core.program.program import UNKNOWN_LOADING, Loading, Program
from waferstream.core.program.schedule import Rounds
from waferstream.core.program.segment import ARITHMETIC_KINDS
from waferstream.core.program.stream_plan import plan_streams
from waferstream.core.sparsity.spec import WeightSparsity
from waferstream.machine.attribution import StepTiming, TimedSteps
from waferstream.machine.densities import StepSparsity
from waferstream.machine.hardware import EVEN, MachineSpec
from waferstream.machine.record import Record
from waferstream.machine.sram import SramPlan
from waferstream.machine.stalls import StreamCheck
from waferstream.machine.timeline import State
from waferstream.simulator.cluster_timing import ClusterTiming, RoundCache
from waferstream.simulator.costed_program import DENSE_STEP, CostedProgram
from waferstream.simulator.costed_sizes import (
    CostedSizes,
    PlanCache,
    PlannedSizes,
    memory_key,
)
from waferstream.simulator.periodicity import run_until_periodic
from waferstream.simulator.stream_checks import checked_streams

MOST_STEPS = 16
"""Steps to look for a state that comes back; without one, they are averaged except the first."""
JITTERED_STEPS = 4
"""The same with jitter, with which no state comes back."""


@dataclass(frozen=True)
class Prediction:
    """Prediction for one cluster size: a step after the machine has settled.

    Where several steps alternate, ``timing`` is their mean.
    """

    num_csx: int
    micro_batch_size: int
    timing: StepTiming
    arithmetic_flops: int  # of the whole step: matrix products and attention, nothing twice
    steps_ps: tuple[int, ...]  # every step from the machine's first to the last of ``timing``

    @property
    def samples_per_s(self) -> float:
        return self.timing.samples_per_s

    @property
    def flops_per_s(self) -> float:
        """Operations of matrix products and attention per second, over all systems."""
        return self.arithmetic_flops * self.samples_per_s / self.timing.batch_size


@dataclass(frozen=True)
class Simulator:
    """Simulates a step of one model, on clusters of one kind of machine.

    ``update``, ``waits_for_all``, ``loading``, ``sparsity`` and ``sparse`` are as for
    ``CostedProgram.of``. ``one_group`` is the step as captured for a single group of samples, or a
    single sample where none share a loss; without it, that step follows from ``program``. With
    ``allows_overflow``, a micro-batch that has no room is predicted as if it had.
    Predictions share two caches: settled steps by micro-batch size, rounds and tree depth (with
    jitter: systems), and the effects of rounds. Costs are cached by ``CostedSizes``, SRAM plans in
    ``plans``, which simulators of one step on several machines may share.
    """

    program: ScalableProgram
    machine: MachineSpec
    num_servers: int = 1
    update: UpdateCost = NO_UPDATE
    waits_for_all: bool = False
    loading: Loading = UNKNOWN_LOADING
    sparsity: StepSparsity = DENSE_STEP
    sparse: Sequence[WeightSparsity] = ()
    one_group: Program | None = None
    allows_overflow: bool = False
    plans: PlanCache = field(default_factory=dict, repr=False, compare=False)
    _settled: dict[tuple[int, int, int], _Settled] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    _rounds: RoundCache = field(default_factory=dict, init=False, repr=False, compare=False)
    _checks: dict[int, tuple[StreamCheck, ...]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    @classmethod
    def of(
        cls,
        program: ScalableProgram,
        optimizer: OptimizerSpec | None,
        machine: MachineSpec,
        num_servers: int,
        loading: Loading = UNKNOWN_LOADING,
        one_group: Program | None = None,
    ) -> Simulator:
        """Return the simulator of a step that ends with an optimizer's update, or with none."""
        return cls(
            program,
            machine,
            num_servers,
            update=update_cost(optimizer, program.parameter),
            waits_for_all=waits_for_all(optimizer),
            loading=loading,
            sparsity=sparsity_by_optimizer(optimizer, program.parameter),
            sparse=() if optimizer is None else optimizer.sparsity,
            one_group=one_group,
        )

    def predict(self, batch_size: int, micro_batch_size: int, num_csx: int) -> Prediction:
        """Predict a step of ``batch_size`` samples in all, at most ``micro_batch_size`` at a time.

        Some micro-batches may have one sample less than others; they take as long.
        """
        cut = Cut.of(batch_size, micro_batch_size, num_csx)
        rounds = Rounds(cut.num_micro_batches, num_csx)
        depth = topology_of(self.machine.swarmx, num_csx).depth
        key = (micro_batch_size, rounds.count, depth if self.machine.jitter == EVEN else num_csx)
        if key not in self._settled:
            self._settled[key] = self._settle(batch_size, micro_batch_size, num_csx)
        settled = self._settled[key]
        num_busy = len(rounds.of_nodes(rounds.count - 1, range(num_csx)))
        return Prediction(
            num_csx,
            micro_batch_size,
            replace(settled.timing, batch_size=batch_size, num_busy=num_busy),
            self._sample_flops * batch_size,
            settled.steps_ps,
        )

    def _settle(self, batch_size: int, micro_batch_size: int, num_csx: int) -> _Settled:
        """Execute steps from the first to one that leaves a state which an earlier one left."""
        costed = self.costed(batch_size, micro_batch_size, num_csx)
        timing, kind = self.cluster_timing(costed, num_csx), costed.program.kind
        most_steps = JITTERED_STEPS if self.machine.jitter.varies else MOST_STEPS
        executed, period = run_until_periodic(
            lambda index: _Step(timing.step(kind, index + 1), timing.state),
            most_steps,
            longest=most_steps,
        )
        return _Settled.of([step.timing for step in executed], period or most_steps - 1)

    @cached_property
    def _sample_flops(self) -> int:
        """Operations of matrix products and attention for one sample."""
        smallest = self._sizes.plans.smallest
        flops = (w.flops for s in smallest.segments for w in s.work if w.kind in ARITHMETIC_KINDS)
        return sum(flops) // smallest.micro_batch_size

    def streams(self, batch_size: int, micro_batch_size: int) -> tuple[StreamCheck, ...]:
        """Return for each segment whether weights and gradients stream in the time it computes."""
        if micro_batch_size not in self._checks:  # a batch does not change its micro-batches
            costed = self.costed(batch_size, micro_batch_size)
            self._checks[micro_batch_size] = checked_streams(costed, self.machine)
        return self._checks[micro_batch_size]

    @property
    def largest_micro_batch(self) -> int:
        """Largest micro-batch that fits with all recomputed that can be; 0 if none does."""
        return self._sizes.plans.largest_sizes[-1]

    @property
    def largest_micro_batches(self) -> tuple[int, int, int]:
        """The same with nothing recomputed, with all, and with inputs on activation servers."""
        return self._sizes.plans.largest_sizes

    @property
    def largest_plan(self) -> SramPlan:
        """The SRAM plan of the largest micro-batch."""
        return self._sizes.plans.fullest

    def sram_plan(self, micro_batch_size: int) -> SramPlan:
        """Return the SRAM plan of one micro-batch, with what is recomputed for it.

        Raises ApplianceResourceExhausted if it does not fit the wafer, and may not overflow it.
        """
        return self._sizes_at(micro_batch_size).plans.sram_plan(micro_batch_size)

    def cluster_timing(
        self, costed: CostedProgram, num_csx: int, record: Record | None = None
    ) -> ClusterTiming:
        """Return the timing model before its first step; ``record`` gets its activities."""
        timing = ClusterTiming(
            self.machine, num_csx, self.num_servers, record=record, cache=self._rounds
        )
        timing.load_program(costed)
        return timing

    def costed(self, batch_size: int, micro_batch_size: int, num_csx: int = 1) -> CostedProgram:
        """Return the costed step at one micro-batch size."""
        cut = Cut.of(batch_size, micro_batch_size, num_csx)
        return self._sizes_at(micro_batch_size).costed(micro_batch_size).with_cut(cut)

    def swarmx_nodes(self, num_csx: int) -> int:
        """Return how many SwarmX nodes connect ``num_csx`` systems."""
        return swarmx_nodes(self.machine.swarmx, num_csx)

    def _sizes_at(self, micro_batch_size: int) -> CostedSizes:
        one = self.one_group
        is_one = one is not None and micro_batch_size == one.micro_batch_size
        return self._one_group_alone if is_one else self._sizes

    @cached_property
    def _sizes(self) -> CostedSizes:
        return self._sizes_of(self.program)

    @cached_property
    def _one_group_alone(self) -> CostedSizes:
        assert self.one_group is not None, "its size was compared"
        return self._sizes_of(ScalableProgram.at_one_size(self.one_group))

    def _sizes_of(self, program: ScalableProgram) -> CostedSizes:
        key = (memory_key(self.machine), program is self.program, self.allows_overflow)
        if key not in self.plans:
            self.plans[key] = PlannedSizes(
                program, self.machine, allows_overflow=self.allows_overflow
            )
        return CostedSizes(self.plans[key], self.machine, self._costed_program_of)

    def _costed_program_of(self, sram_plan: SramPlan) -> CostedProgram:
        program = sram_plan.program
        return CostedProgram.of(
            program,
            plan_streams(program, self.num_servers),
            self.machine,
            update=self.update,
            waits_for_all=self.waits_for_all,
            loading=self.loading,
            sparsity=self.sparsity,
            sparse=self.sparse,
            sram_plan=sram_plan,
        )


class _Step(NamedTuple):
    """A step, and the state that it left."""

    timing: StepTiming
    state: State


class _Settled(NamedTuple):
    """Durations of the steps from the first on, and the mean of those that repeat from then on."""

    timing: StepTiming
    steps_ps: tuple[int, ...]

    @classmethod
    def of(cls, timings: Sequence[StepTiming], period: int) -> _Settled:
        """Take the last ``period`` steps for all that follow."""
        mean = TimedSteps.of(timings[-period:]).mean_step()
        return cls(mean, tuple(timing.duration_ps for timing in timings))
