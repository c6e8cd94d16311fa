"""One program as the emulated clock reads it: everything that does not change from step to step."""

from __future__ import annotations

from collections.abc import Sequence

from wsc.core.actions import node_actions
from wsc.core.program import Program, StreamPlan
from wsc.timing.cost import SegmentCost, segment_ps
from wsc.timing.hardware import WaferSpec


class Timetable:
    """A program, how it streams, and what each segment costs on one system.

    ``state_bytes_per_element`` is the size of the optimizer's state (Adam in fp32: 8).
    ``clips_by_norm`` says that no parameter is updated before the global gradient norm is known,
    which takes the gradients of all parameters.
    """

    def __init__(
        self,
        program: Program,
        plan: StreamPlan,
        wafer: WaferSpec,
        *,
        state_bytes_per_element: int = 0,
        clips_by_norm: bool = False,
    ) -> None:
        self.name = f"{program.mode} {program.digest}"
        self.program = program
        self.plan = plan
        self.state_bytes_per_element = state_bytes_per_element
        self.clips_by_norm = clips_by_norm
        self.actions = node_actions(program, plan)
        self.costs: Sequence[SegmentCost] = [segment_ps(s.work, wafer) for s in program.segments]
        self.input_bytes = sum(spec.num_bytes for spec in program.inputs)
        self.first_weights = program.segments[0].weights
        self._labels = [f"{segment.layer} {segment.phase}" for segment in program.segments]

    def label(self, segment: int) -> str:
        """What a trace calls the work of a segment."""
        return self._labels[segment]
