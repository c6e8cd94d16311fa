"""A program with its costs: everything in timing that does not change from step to step.

``CostedSizes`` has it for one step at any micro-batch size. The larger the micro-batch, the more
segments are recomputed for it to fit. Sizes for which the same segments are recomputed share
program, SRAM plan and costed program, which are made once and scaled from size to size.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from itertools import groupby

from memoryx.optim.cost import NO_UPDATE, UpdateCost
from memoryx.tiers import Tiers, tiers_of
from waferstream.compiler.derivation.scale import ScalableProgram
from waferstream.core.program.loading import UNKNOWN_LOADING, Loading
from waferstream.core.program.micro_batches import Cut
from waferstream.core.program.program import Program
from waferstream.core.program.schedule import Schedule, SegmentStep, schedule_of
from waferstream.core.program.stream_plan import StreamPlan
from waferstream.core.sparsity.spec import WeightSparsity
from waferstream.machine.cost import SegmentCost, segment_costs
from waferstream.machine.densities import Densities, StepSparsity, sparse_plan
from waferstream.machine.hardware import MachineSpec
from waferstream.machine.sram import SramPlan, capacities, check_fits, num_recomputed, recompute
from waferstream.machine.sram.recompute import internals_of, saving
from waferstream.machine.sram.space import Life, lives

DENSE_STEP = StepSparsity()


@dataclass(frozen=True)
class CostedProgram:
    """A program with its schedule, the costs of its segments on one system, and its memory tiers.

    ``update`` is the cost of the optimizer (memoryx.optim.cost.update_cost). With ``waits_for_all``
    no parameter is updated before the gradients of all parameters are known: their norm, or, with a
    dynamic loss scale, whether they are finite. A skipped step takes as long as any other.
    """

    program: Program
    schedule: Schedule
    costs: Sequence[SegmentCost]
    tiers: Tiers
    loading: Loading
    load_ps: int  # of one micro-batch, by the input workers of one system
    update: UpdateCost
    waits_for_all: bool
    plan: StreamPlan  # with all zeros of sparse weights
    sparsity: StepSparsity = DENSE_STEP

    @classmethod
    def of(
        cls,
        program: Program,
        plan: StreamPlan,
        machine: MachineSpec,
        *,
        update: UpdateCost = NO_UPDATE,
        waits_for_all: bool = False,
        loading: Loading = UNKNOWN_LOADING,
        sparsity: StepSparsity = DENSE_STEP,
        sparse: Sequence[WeightSparsity] = (),
    ) -> CostedProgram:
        """Cost a program on machines of one kind, for any number of systems.

        Zeros of sparse weights neither stream nor compute; ``sparse`` are the weights that have
        masks, whose largest density in the run decides the room in MemoryX.

        Raises ApplianceResourceExhausted if model and optimizer do not fit MemoryX.
        """
        return cls(
            program,
            schedule=schedule_of(program, sparse_plan(plan, sparsity)),
            tiers=tiers_of(program, machine.memoryx, update.state_bytes, sparse),
            costs=_costs(program, machine, sparsity),
            loading=loading,
            load_ps=_load_ps(program, machine, loading),
            update=update,
            waits_for_all=waits_for_all,
            plan=plan,
            sparsity=sparsity,
        )

    def with_program(self, program: Program, machine: MachineSpec) -> CostedProgram:
        """Return the same step at another micro-batch size, which changes segments' work alone."""
        return replace(
            self,
            program=program,
            costs=_costs(program, machine, self.sparsity),
            load_ps=_load_ps(program, machine, self.loading),
        )

    def with_sparsity(self, sparsity: StepSparsity, machine: MachineSpec) -> CostedProgram:
        """Return the same step where its weights have another sparsity."""
        costs = self.costs
        charged = sparsity.densities, sparsity.gradient_densities
        if charged != (self.densities, self.sparsity.gradient_densities):
            costs = _costs(self.program, machine, sparsity)
        schedule = schedule_of(self.program, sparse_plan(self.plan, sparsity))
        return replace(self, schedule=schedule, costs=costs, sparsity=sparsity)

    def with_cut(self, cut: Cut) -> CostedProgram:
        """Return the same step for another batch, or one that is cut in another way."""
        program = self.program
        num_short = program.micro_batch_size * cut.num_micro_batches - cut.batch_size
        return replace(
            self,
            program=replace(program, num_micro_batches=cut.num_micro_batches, num_short=num_short),
        )

    @cached_property
    def name(self) -> str:
        """Name of what one round does; it does not depend on the number of rounds."""
        sparsity = "" if self.sparsity == DENSE_STEP else f" {self.sparsity}"
        return f"{self.program.kind} {self.program.digest} {self.load_ps}{sparsity}"

    @property
    def densities(self) -> Densities:
        """Share of the elements that are not zero, by weight."""
        return self.sparsity.densities

    @cached_property
    def input_bytes(self) -> int:
        """Bytes of the inputs of one micro-batch."""
        return sum(spec.num_bytes for spec in self.program.inputs_of(0))

    @cached_property
    def first_weights(self) -> tuple[str, ...]:
        """Names of the parameters that the next step needs first."""
        return self.program.segments[0].weights

    @cached_property
    def repeated_runs(self) -> tuple[Schedule, ...]:
        """The schedule cut into runs of steps that differ only in the names of their weights."""
        runs = groupby(
            self.schedule,
            lambda step: (step.load, self.costs[step.segment], self._mask_bytes_of(step)),
        )
        return tuple(tuple(steps) for _, steps in runs)

    def _mask_bytes_of(self, step: SegmentStep) -> tuple[int, ...]:
        return tuple(map(self.sparsity.mask_bytes_of, step.gradients))


def _costs(program: Program, machine: MachineSpec, sparsity: StepSparsity) -> list[SegmentCost]:
    gradients = sparsity.gradient_densities
    return segment_costs(program, machine.system, sparsity.densities, gradients)


def _load_ps(program: Program, machine: MachineSpec, loading: Loading) -> int:
    elements = sum(spec.num_elements for spec in program.inputs_of(0))
    return machine.input.load_ps(loading, program.micro_batch_size, elements)


@dataclass
class _Recomputed:
    """What the micro-batch sizes share for which the same segments are recomputed.

    ``sram_plan`` and ``costed`` are at any of these sizes; ``costed`` is there from the first size
    on that is costed.
    """

    program: ScalableProgram
    sram_plan: SramPlan
    costed: CostedProgram | None = None


class CostedSizes:
    """A step on the wafers of one machine at any micro-batch size; each result is kept.

    ``costed_program_of`` costs a program that fits the wafer. The caches of this class are
    ``sram_plan`` and ``costed``, by micro-batch size, and ``_recomputed``, by recomputed segments.
    """

    def __init__(
        self,
        program: ScalableProgram,
        machine: MachineSpec,
        costed_program_of: Callable[[Program], CostedProgram],
    ) -> None:
        self._program = program
        self._machine = machine
        self._costed_program_of = costed_program_of
        self.sram_plan = cache(self._sram_plan_at)
        self.costed = cache(self._costed_at)
        self._recomputed = cache(self._recomputing)

    @cached_property
    def smallest(self) -> Program:
        """The step at the smaller captured size, without recompute."""
        return self._program.smallest

    @property
    def largest_micro_batch(self) -> int:
        """Largest micro-batch that fits with all recomputed that can be; 0 if none does."""
        return self._capacities[-1]

    def _sram_plan_at(self, micro_batch_size: int) -> SramPlan:
        """Plan the SRAM for one micro-batch, with as few segments recomputed as it takes.

        Raises ApplianceResourceExhausted if it does not fit the wafer.
        """
        shared = self._recomputed(num_recomputed(self._capacities, micro_batch_size))
        sram_plan = shared.sram_plan.with_program(shared.program.at(micro_batch_size, 1))
        check_fits(sram_plan)
        return sram_plan

    def _costed_at(self, micro_batch_size: int) -> CostedProgram:
        """Cost the step of a single micro-batch; errors as of ``sram_plan``."""
        sram_plan = self.sram_plan(micro_batch_size)
        shared = self._recomputed(len(sram_plan.recomputed))
        if shared.costed is None:
            shared.costed = self._costed_program_of(sram_plan.program)
            return shared.costed
        return shared.costed.with_program(sram_plan.program, self._machine)

    def _recomputing(self, count: int) -> _Recomputed:
        """Recompute the first ``count`` segments of those that can be."""
        chosen = self._recomputable[:count]
        program = self._program
        if chosen:
            program = program.changed(lambda each: recompute(each, chosen, self._internals))
        sram_plan = SramPlan.of(program.smallest, self._machine.system, chosen)
        return _Recomputed(program, sram_plan)

    @cached_property
    def _capacities(self) -> tuple[int, ...]:
        return capacities(self.smallest, self._machine.system)

    @cached_property
    def _recomputable(self) -> tuple[int, ...]:
        return saving(self.smallest, self._internals)

    @cached_property
    def _internals(self) -> Mapping[int, Sequence[Life]]:
        """Internals by forward segment; they are given per sample, so no size changes them."""
        return internals_of(self.smallest, lives(self.smallest))
