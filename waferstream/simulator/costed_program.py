"""One program with its costs: everything in timing that does not change from step to step."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby

from memoryx.optim.cost import NO_UPDATE, UpdateCost
from memoryx.tiers import Tiers, tiers_of
from waferstream.core.program.micro_batches import Cut
from waferstream.core.program.program import UNKNOWN_LOADING, Loading, Program
from waferstream.core.program.schedule import Schedule, SegmentStep, schedule_of
from waferstream.core.program.stream_plan import StreamPlan
from waferstream.core.sparsity.spec import WeightSparsity
from waferstream.machine.cost import SegmentCost, segment_costs
from waferstream.machine.densities import Densities, StepSparsity, sparse_plan
from waferstream.machine.hardware import MachineSpec
from waferstream.machine.sram import Page, PagedBytes, SramPlan, paged_bytes

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
    paged: Sequence[PagedBytes]  # at each segment
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
        sram_plan: SramPlan | None = None,
    ) -> CostedProgram:
        """Cost a program on machines of one kind, for any number of systems.

        Zeros of sparse weights neither stream nor compute; ``sparse`` are the weights that have
        masks, whose largest density in the run decides the room in MemoryX. ``sram_plan`` is that
        of the program, where it is known.

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
            paged=paged_bytes(program, (sram_plan or SramPlan.of(program, machine)).pages),
            sparsity=sparsity,
        )

    def with_program(
        self, program: Program, machine: MachineSpec, pages: Iterable[Page]
    ) -> CostedProgram:
        """Return the same step at another micro-batch size, with other ``pages`` away."""
        return replace(
            self,
            program=program,
            paged=paged_bytes(program, pages),
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
            lambda step: (
                step.load,
                self.costs[step.segment],
                self.paged[step.segment],
                self._mask_bytes_of(step),
            ),
        )
        return tuple(tuple(steps) for _, steps in runs)

    def is_backward(self, step: SegmentStep) -> bool:
        """Return whether a step computes gradients."""
        return self.program.segments[step.segment].phase == "backward"

    def _mask_bytes_of(self, step: SegmentStep) -> tuple[int, ...]:
        return tuple(map(self.sparsity.mask_bytes_of, step.gradients))


def _costs(program: Program, machine: MachineSpec, sparsity: StepSparsity) -> list[SegmentCost]:
    gradients = sparsity.gradient_densities
    return segment_costs(program, machine.system, sparsity.densities, gradients)


def _load_ps(program: Program, machine: MachineSpec, loading: Loading) -> int:
    elements = sum(spec.num_elements for spec in program.inputs_of(0))
    return machine.input.load_ps(loading, program.micro_batch_size, elements)
