"""One step at any micro-batch size: recomputed segments, SRAM plan and costs.

The larger the micro-batch, the more segments are recomputed for it to fit. Sizes for which the same
segments are recomputed share program, SRAM plan and costed program, which are made once and
scaled from size to size.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property

from waferstream.compiler.derivation.scale import ScalableProgram
from waferstream.core.program.program import Program
from waferstream.machine.hardware import MachineSpec
from waferstream.machine.sram import (
    SramPlan,
    capacities,
    check_fits,
    num_recomputed,
    recompute,
)
from waferstream.machine.sram.recompute import internals_of, saving
from waferstream.machine.sram.space import Life, lives
from waferstream.simulator.costed_program import CostedProgram


@dataclass(frozen=True)
class _Recomputed:
    """What the micro-batch sizes share for which the same segments are recomputed.

    ``sram_plan`` is at any of these sizes.
    """

    program: ScalableProgram
    sram_plan: SramPlan


class PlannedSizes:
    """Programs and SRAM plans of a step at any micro-batch size, on wafers of one memory.

    Each result is kept: ``sram_plan`` by micro-batch size, ``recomputed`` by the number of
    recomputed segments. A plan fits the wafer, unless ``allows_overflow``.
    """

    def __init__(
        self, program: ScalableProgram, machine: MachineSpec, *, allows_overflow: bool = False
    ) -> None:
        self._program = program
        self._machine = machine
        self._allows_overflow = allows_overflow
        self.sram_plan = cache(self._sram_plan_at)
        self.recomputed = cache(self._recomputing)

    @cached_property
    def smallest(self) -> Program:
        """The step at the smaller captured size, without recompute."""
        return self._program.smallest

    @cached_property
    def largest_sizes(self) -> tuple[int, int, int]:
        """Largest micro-batches: nothing recomputed, all that can be, and inputs away, too.

        The last one is 1 where a single sample fits in blocks alone.
        """
        alone, recomputed = self._capacities[0], self._capacities[-1]
        fullest = self.fullest
        return alone, recomputed, max(recomputed, fullest.paging.largest) or int(fullest.fits)

    @property
    def fullest(self) -> SramPlan:
        """The plan of the largest micro-batch, or of one sample where none fits."""
        shared = self.recomputed(len(self._capacities) - 1)
        most = max(1, shared.sram_plan.paging.largest)
        return shared.sram_plan.with_program(shared.program.at(most, 1)).in_blocks()

    def _sram_plan_at(self, micro_batch_size: int) -> SramPlan:
        """Plan the SRAM for one micro-batch, with as few segments recomputed as it takes.

        Raises ApplianceResourceExhausted if it does not fit the wafer, and may not overflow it.
        """
        shared = self.recomputed(num_recomputed(self._capacities, micro_batch_size))
        sram_plan = shared.sram_plan.with_program(shared.program.at(micro_batch_size, 1))
        sram_plan = sram_plan.in_blocks()
        if not self._allows_overflow:
            check_fits(sram_plan)
        return sram_plan

    def _recomputing(self, count: int) -> _Recomputed:
        """Recompute the first ``count`` segments of those that can be."""
        chosen = self._recomputable[:count]
        program = self._program
        if chosen:
            program = program.changed(lambda each: recompute(each, chosen, self._internals))
        sram_plan = SramPlan.of(program.smallest, self._machine, chosen)
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


PlanCache = dict[Hashable, PlannedSizes]
"""The plans of one step by what decides them: simulators on several machines may share it."""


def memory_key(machine: MachineSpec) -> Hashable:
    """Return what of a machine decides SRAM plans: all of a system but its clock, and its servers.

    Plans count bytes, and the time in which a link fills a buffer; none of it is in cycles.
    """
    return machine.system.model_copy(update={"clock_hz": 1}), machine.activations


class CostedSizes:
    """A planned step on one machine at any micro-batch size, with its costs; each is kept.

    ``costed_program_of`` costs the program of a plan. The costed program of the first size is there
    for all sizes for which the same segments are recomputed, and none runs in blocks.
    """

    def __init__(
        self,
        plans: PlannedSizes,
        machine: MachineSpec,
        costed_program_of: Callable[[SramPlan], CostedProgram],
    ) -> None:
        self.plans = plans
        self._machine = machine
        self._costed_program_of = costed_program_of
        self._by_recomputed: dict[int, CostedProgram] = {}
        self.costed = cache(self._costed_at)

    def _costed_at(self, micro_batch_size: int) -> CostedProgram:
        """Cost the step of a single micro-batch; errors as of ``sram_plan``."""
        sram_plan = self.plans.sram_plan(micro_batch_size)
        if sram_plan.runs_in_blocks:
            return self._costed_program_of(sram_plan)
        recomputed = len(sram_plan.recomputed)
        like = self._by_recomputed.get(recomputed)
        if like is None:
            like = self._by_recomputed[recomputed] = self._costed_program_of(sram_plan)
            return like
        return like.with_program(sram_plan.program, self._machine, sram_plan.pages)
