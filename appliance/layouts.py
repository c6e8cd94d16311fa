"""One step at any micro-batch size: what is recomputed, where it lies on the wafer, what it costs.

The larger the micro-batch, the more segments are recomputed for it to fit. Sizes for which the same
segments are recomputed share a layout: the program, its placement and its timetable are made once
and only scaled from size to size.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from appliance.timetable import Timetable
from wsc.compiler.scale import CAPTURED_SIZES, ScalableProgram
from wsc.core.program import Program
from wsc.timing.hardware import MachineSpec
from wsc.timing.placement import (
    Placement,
    capacities,
    check_fits,
    num_recomputed,
    recomputable,
    recompute,
)


@dataclass
class _Layout:
    """What sizes share for which the same segments are recomputed; at any of these sizes."""

    program: ScalableProgram
    placement: Placement
    timetable: Timetable | None = None


class Layouts:
    """A step on the wafers of one machine; whatever is asked for is made once and kept.

    ``timetable_of`` makes the timetable of a program that fits the wafer.
    """

    def __init__(
        self,
        program: ScalableProgram,
        machine: MachineSpec,
        timetable_of: Callable[[Program], Timetable],
    ) -> None:
        self._program = program
        self._machine = machine
        self._timetable_of = timetable_of
        self._layouts: dict[int, _Layout] = {}
        self._placements: dict[int, Placement] = {}
        self._timetables: dict[int, Timetable] = {}

    @cached_property
    def smallest(self) -> Program:
        """The step at the smallest size that was captured, nothing recomputed."""
        return self._program.at(CAPTURED_SIZES[0], 1)

    @property
    def largest_micro_batch(self) -> int:
        """Samples that fit the wafer at a time, recomputing what can be; 0 if not even one does."""
        return self._capacities[-1]

    def placement(self, micro_batch_size: int) -> Placement:
        """Where one micro-batch lies, and what is recomputed for it.

        Raises ApplianceResourceExhausted if it does not fit the wafer.
        """
        if micro_batch_size not in self._placements:
            layout = self._layout(micro_batch_size)
            placement = layout.placement.at(layout.program.at(micro_batch_size, 1))
            check_fits(placement)
            self._placements[micro_batch_size] = placement
        return self._placements[micro_batch_size]

    def timetable(self, micro_batch_size: int) -> Timetable:
        """The step of a single micro-batch as the clock reads it; errors as of ``placement``."""
        if micro_batch_size not in self._timetables:
            program = self.placement(micro_batch_size).program
            layout = self._layout(micro_batch_size)
            layout.timetable = (
                self._timetable_of(program)
                if layout.timetable is None
                else layout.timetable.at(program, self._machine)
            )
            self._timetables[micro_batch_size] = layout.timetable
        return self._timetables[micro_batch_size]

    def _layout(self, micro_batch_size: int) -> _Layout:
        count = num_recomputed(self._capacities, micro_batch_size)
        if count not in self._layouts:
            chosen = self._recomputable[:count]
            program = self._program.changed(lambda p: recompute(p, chosen) if chosen else p)
            placement = Placement(program.at(CAPTURED_SIZES[0], 1), self._machine.system, chosen)
            self._layouts[count] = _Layout(program, placement)
        return self._layouts[count]

    @cached_property
    def _capacities(self) -> tuple[int, ...]:
        return capacities(self.smallest, self._machine.system)

    @cached_property
    def _recomputable(self) -> tuple[int, ...]:
        return recomputable(self.smallest)
