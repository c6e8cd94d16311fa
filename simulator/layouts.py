"""One step at any micro-batch size: what is recomputed, where it lies on the wafer, what it costs.

The larger the micro-batch, the more segments are recomputed for it to fit. Sizes for which the same
segments are recomputed share a layout: the program, its sram_plan and its costed are made once
and only scaled from size to size.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from simulator.costed_program import CostedProgram
from timing.hardware import MachineSpec
from timing.sram import (
    SramPlan,
    capacities,
    check_fits,
    num_recomputed,
    recomputable,
    recompute,
)
from wsc.compiler.scale import CAPTURED_SIZES, ScalableProgram
from wsc.core.program import Program


@dataclass
class _Layout:
    """What sizes share for which the same segments are recomputed; at any of these sizes."""

    program: ScalableProgram
    sram_plan: SramPlan
    costed: CostedProgram | None = None


class Layouts:
    """A step on the wafers of one machine; whatever is asked for is made once and kept.

    ``costed_program_of`` makes the costed of a program that fits the wafer.
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
        self._layouts: dict[int, _Layout] = {}
        self._sram_plans: dict[int, SramPlan] = {}
        self._costed_programs: dict[int, CostedProgram] = {}

    @cached_property
    def smallest(self) -> Program:
        """The step at the smallest size that was captured, nothing recomputed."""
        return self._program.at(CAPTURED_SIZES[0], 1)

    @property
    def largest_micro_batch(self) -> int:
        """Samples that fit the wafer at a time, recomputing what can be; 0 if not even one does."""
        return self._capacities[-1]

    def sram_plan(self, micro_batch_size: int) -> SramPlan:
        """Where one micro-batch lies, and what is recomputed for it.

        Raises ApplianceResourceExhausted if it does not fit the wafer.
        """
        if micro_batch_size not in self._sram_plans:
            layout = self._layout(micro_batch_size)
            sram_plan = layout.sram_plan.at(layout.program.at(micro_batch_size, 1))
            check_fits(sram_plan)
            self._sram_plans[micro_batch_size] = sram_plan
        return self._sram_plans[micro_batch_size]

    def costed(self, micro_batch_size: int) -> CostedProgram:
        """The step of a single micro-batch as the clock reads it; errors as of ``sram_plan``."""
        if micro_batch_size not in self._costed_programs:
            program = self.sram_plan(micro_batch_size).program
            layout = self._layout(micro_batch_size)
            layout.costed = (
                self._costed_program_of(program)
                if layout.costed is None
                else layout.costed.at(program, self._machine)
            )
            self._costed_programs[micro_batch_size] = layout.costed
        return self._costed_programs[micro_batch_size]

    def _layout(self, micro_batch_size: int) -> _Layout:
        count = num_recomputed(self._capacities, micro_batch_size)
        if count not in self._layouts:
            chosen = self._recomputable[:count]
            program = self._program.changed(lambda p: recompute(p, chosen) if chosen else p)
            sram_plan = SramPlan(program.at(CAPTURED_SIZES[0], 1), self._machine.system, chosen)
            self._layouts[count] = _Layout(program, sram_plan)
        return self._layouts[count]

    @cached_property
    def _capacities(self) -> tuple[int, ...]:
        return capacities(self.smallest, self._machine.system)

    @cached_property
    def _recomputable(self) -> tuple[int, ...]:
        return recomputable(self.smallest)
