"""What a training step uses of the emulated machine: wafer, memory, tree, and where it stalls.

Layers that are alike share a row.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from memoryx.tiers import Tiers
from waferstream.core.program.schedule import Rounds
from waferstream.core.units import format_bytes, format_ps, seconds
from waferstream.machine.hardware import MachineSpec
from waferstream.machine.sram import SramPlan, largest_with_recompute
from waferstream.machine.stalls import StreamCheck
from waferstream.simulator.costed_program import CostedProgram
from waferstream.simulator.stream_checks import checked_streams

NUMBER = re.compile(r"\d+")
"""What layers that are alike may differ in."""
_MOST_RANGES = 3  # a path with more ranges is too long

LAYER_HEADER = (
    "layers", "phase", "count", "density", "weights", "gradients", "activations", "stream time",
    "compute time", "bound by", "stalls", "remedy",
)  # fmt: skip
"""Names of the columns of ``layer_row``."""


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
        checks: Sequence[StreamCheck] | None = None,
    ) -> MachineUse:
        """Return the use of a step that takes ``step_ps``.

        Args:
            costed: The step with its costs.
            machine: The emulated machine.
            num_csx: Systems that share the step.
            step_ps: Emulated time of the step.
            sram_plan: The plan of its micro-batches; by default with nothing recomputed.
            checks: The no-stall condition of its segments, where it is known.
        """
        program = costed.program
        checks = checked_streams(costed, machine) if checks is None else checks
        largest = largest_with_recompute(program, machine)
        return cls(
            num_csx=num_csx,
            machine=machine,
            tiers=costed.tiers,
            sram_plan=sram_plan or SramPlan.of(program, machine),
            layers=group_layers(checks, program.micro_batch_size, largest),
            load=link_load(costed, machine, num_csx, step_ps),
        )


def link_load(costed: CostedProgram, machine: MachineSpec, num_csx: int, step_ps: int) -> LinkLoad:
    """Return the bytes of a step on every link: weights and gradients once a round."""
    rounds = Rounds(costed.program.num_micro_batches, num_csx).count
    down = rounds * sum(b.moved_bytes for step in costed.schedule for b in step.weights)
    up = rounds * sum(b.moved_bytes for step in costed.schedule for b in step.gradients)
    most = machine.swarmx.link_bandwidth_bytes_per_s * seconds(step_ps)
    return LinkLoad(down, up, down / most, up / most)


@dataclass(frozen=True)
class LayerGroup:
    """The no-stall condition of ``count`` layers that differ in their numbers only."""

    layers: str
    """Path with ranges, ``decoder.0-11``; with * where there are many ranges."""
    count: int
    check: StreamCheck
    """Bytes and times of one of the layers."""
    stream_ps: int
    remedy: str
    """The smallest sufficient change of each kind; empty where the condition holds."""


def group_layers(
    checks: Sequence[StreamCheck], micro_batch_size: int, largest: int
) -> tuple[LayerGroup, ...]:
    """Group equal checks of layers that differ in their numbers only.

    Args:
        checks: One check per segment, in order of execution.
        micro_batch_size: Samples per micro-batch.
        largest: Samples of the largest micro-batch that fits a wafer.

    Returns:
        Groups in the order of their first layers.
    """
    paths: dict[StreamCheck, list[str]] = {}
    for check in checks:
        key = replace(check, layer=NUMBER.sub("*", check.layer))
        paths.setdefault(key, []).append(check.layer)
    return tuple(
        LayerGroup(
            layers=joint_path(layers),
            count=len(layers),
            check=check,
            stream_ps=check.stream_ps,
            remedy=check.remedy(micro_batch_size, largest),
        )
        for check, layers in paths.items()
    )


def layer_row(group: LayerGroup) -> tuple[str, ...]:
    """Return one group as a row of a table."""
    check = group.check
    return (
        group.layers,
        check.phase,
        f"{group.count}",
        f"{check.density:.3g}",
        format_bytes(check.weight_bytes),
        format_bytes(check.gradient_bytes),
        format_bytes(max(check.paged)),
        format_ps(group.stream_ps),
        format_ps(check.compute_ps),
        check.bound,
        "no" if check.holds else "yes",
        group.remedy,
    )


def joint_path(layers: Sequence[str]) -> str:
    """Return one path for all: ``decoder.0-11``, or ``decoder.*`` for many ranges."""
    if len(layers) == 1:
        return layers[0]
    numbers = [NUMBER.findall(layer) for layer in layers]
    ranges = _ranges({int(number) for (number,) in numbers}) if len(numbers[0]) == 1 else []
    return NUMBER.sub(",".join(ranges) if 0 < len(ranges) <= _MOST_RANGES else "*", layers[0])


def _ranges(numbers: set[int]) -> list[str]:
    ends: list[tuple[int, int]] = []
    for number in sorted(numbers):
        if ends and number == ends[-1][1] + 1:
            ends[-1] = (ends[-1][0], number)
        else:
            ends.append((number, number))
    return [f"{first}-{last}" if first < last else f"{first}" for first, last in ends]
