"""One program as the emulated clock reads it: everything that does not change from step to step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from wsc.core.actions import Action, node_actions
from wsc.core.program import Program, StreamPlan
from wsc.timing.cost import SegmentCost, segment_ps
from wsc.timing.hardware import WaferSpec


@dataclass(frozen=True)
class Timetable:
    """A program, how it streams, and what each segment costs on one system.

    ``state_bytes_per_element`` is the size of the optimizer's state (Adam in fp32: 8).
    ``clips_by_norm`` says that no parameter is updated before the global gradient norm is known,
    which takes the gradients of all parameters.
    """

    program: Program
    plan: StreamPlan
    costs: Sequence[SegmentCost]
    actions: Sequence[Action]  # of a CS node, for one micro-batch
    state_bytes_per_element: int = 0
    clips_by_norm: bool = False

    @classmethod
    def of(
        cls,
        program: Program,
        plan: StreamPlan,
        wafer: WaferSpec,
        *,
        state_bytes_per_element: int = 0,
        clips_by_norm: bool = False,
    ) -> Timetable:
        """The timetable of a program on systems of one kind."""
        costs = [segment_ps(segment.work, wafer) for segment in program.segments]
        actions = node_actions(program, plan)
        return cls(program, plan, costs, actions, state_bytes_per_element, clips_by_norm)

    def dealt(self, num_micro_batches: int) -> Timetable:
        """The same for a batch of another number of micro-batches."""
        return replace(self, program=replace(self.program, num_micro_batches=num_micro_batches))

    @cached_property
    def name(self) -> str:
        """Names what one round does, which does not depend on how many there are."""
        return f"{self.program.mode} {self.program.digest}"

    @cached_property
    def input_bytes(self) -> int:
        """Of one micro-batch."""
        return sum(spec.num_bytes for spec in self.program.inputs)

    @cached_property
    def first_weights(self) -> tuple[str, ...]:
        """The parameters that the next step needs first."""
        return self.program.segments[0].weights

    def label(self, segment: int) -> str:
        """What a trace calls the work of a segment."""
        return self._labels[segment]

    @cached_property
    def _labels(self) -> list[str]:
        return [f"{segment.layer} {segment.phase}" for segment in self.program.segments]
