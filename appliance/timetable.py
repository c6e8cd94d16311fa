"""One program as the emulated clock reads it: everything that does not change from step to step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from memoryx.optim.cost import NO_UPDATE, UpdateCost
from memoryx.tiers import Tiers, tiers_of
from wsc.core.actions import Action, node_actions
from wsc.core.program import Program, StreamPlan
from wsc.timing.cost import SegmentCost, segment_costs
from wsc.timing.hardware import UNKNOWN_LOADING, Loading, MachineSpec


@dataclass(frozen=True)
class Timetable:
    """A program, how it is fed and streams, what segments cost on one system, where weights lie.

    ``update`` is what the optimizer costs (memoryx.optim.cost.update_cost). ``clips_by_norm`` says
    that no parameter is updated before the global gradient norm is known, which takes the gradients
    of all parameters.
    """

    program: Program
    plan: StreamPlan
    costs: Sequence[SegmentCost]
    actions: Sequence[Action]  # of a CS node, for one micro-batch
    tiers: Tiers
    load_ps: int  # of one micro-batch, by the input workers of one system
    update: UpdateCost = NO_UPDATE
    clips_by_norm: bool = False

    @classmethod
    def of(
        cls,
        program: Program,
        plan: StreamPlan,
        machine: MachineSpec,
        *,
        update: UpdateCost = NO_UPDATE,
        clips_by_norm: bool = False,
        loading: Loading = UNKNOWN_LOADING,
    ) -> Timetable:
        """The timetable of a program on machines of one kind, whatever their number of systems.

        Raises ApplianceResourceExhausted if model and optimizer do not fit MemoryX.
        """
        costs = segment_costs(program, machine.system)
        actions = node_actions(program, plan)
        tiers = tiers_of(program, machine.memoryx, update.state_bytes)
        elements = sum(spec.num_elements for spec in program.inputs)
        load_ps = machine.input.load_ps(loading, program.micro_batch_size, elements)
        return cls(program, plan, costs, actions, tiers, load_ps, update, clips_by_norm)

    def dealt(self, num_micro_batches: int) -> Timetable:
        """The same for a batch of another number of micro-batches."""
        return replace(self, program=replace(self.program, num_micro_batches=num_micro_batches))

    @cached_property
    def name(self) -> str:
        """Names what one round does, which does not depend on how many there are."""
        return f"{self.program.mode} {self.program.digest} {self.load_ps}"

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
