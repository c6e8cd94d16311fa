"""What a training step uses of the emulated machine: wafer, memory, tree, and where it stalls."""

from __future__ import annotations

from dataclasses import dataclass

from memoryx.tiers import Tiers
from waferstream.core.program.schedule import Rounds
from waferstream.core.units import seconds
from waferstream.machine.hardware import MachineSpec
from waferstream.machine.sram import SramPlan, largest_with_recompute
from waferstream.reports.machine.layer_groups import LayerGroup, group_layers
from waferstream.simulator.costed_program import CostedProgram
from waferstream.simulator.stream_checks import checked_streams


@dataclass(frozen=True)
class LinkLoad:
    """Bytes that pass every link of the tree in a step, and their share of what it could carry.

    Every payload of MemoryX goes to all systems, and every sum comes from all of them, so all links
    carry the same.
    """

    down_bytes: int
    up_bytes: int
    down: float
    up: float


@dataclass(frozen=True)
class MachineUse:
    """One step of training on ``num_csx`` systems."""

    num_csx: int
    machine: MachineSpec
    tiers: Tiers
    sram_plan: SramPlan
    layers: tuple[LayerGroup, ...]
    load: LinkLoad

    @classmethod
    def of(
        cls,
        costed: CostedProgram,
        machine: MachineSpec,
        num_csx: int,
        step_ps: int,
        sram_plan: SramPlan | None = None,
    ) -> MachineUse:
        """Return the use of a step that takes ``step_ps``.

        Args:
            costed: The step with its costs.
            machine: The emulated machine.
            num_csx: Systems that share the step.
            step_ps: Emulated time of the step.
            sram_plan: The plan of its micro-batches; by default with nothing recomputed.
        """
        program = costed.program
        checks = checked_streams(costed, machine)
        largest = largest_with_recompute(program, machine.system)
        return cls(
            num_csx=num_csx,
            machine=machine,
            tiers=costed.tiers,
            sram_plan=sram_plan or SramPlan.of(program, machine.system),
            layers=group_layers(checks, program.micro_batch_size, largest),
            load=link_load(costed, machine, num_csx, step_ps),
        )


def link_load(costed: CostedProgram, machine: MachineSpec, num_csx: int, step_ps: int) -> LinkLoad:
    """Return the bytes of a step on every link: weights and gradients once a round."""
    rounds = Rounds(costed.program.num_micro_batches, num_csx).count
    down = rounds * sum(b.num_bytes for step in costed.schedule for b in step.weights)
    up = rounds * sum(b.num_bytes for step in costed.schedule for b in step.gradients)
    most = machine.swarmx.link_bandwidth_bytes_per_s * seconds(step_ps)
    return LinkLoad(down, up, down / most, up / most)
