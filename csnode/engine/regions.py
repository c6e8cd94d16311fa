"""Regions of the wafer that an engine uses: what fits, and what a report says of each layer."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import repeat
from math import ceil

from csnode.engine.calls import calls_of
from csnode.engine.closed_forms import (
    counted_cycles,
    engine_cycles,
    kernel_cycles,
    region_grid,
)
from csnode.engine.spec import EngineSpec, LayerRegion
from csnode.fabric.region import Fabric
from waferstream.core.errors import ApplianceResourceExhausted
from waferstream.core.program.program import Program
from waferstream.core.program.segment import OpWork, Segment
from waferstream.machine.densities import DENSE, Densities, op_densities
from waferstream.machine.hardware.fabric import FabricSpec
from waferstream.machine.kernels import Cycles
from waferstream.machine.kernels.op_costs import op_cycles

_SUM_BYTES = 4  # fp32


def check_region(engine: EngineSpec, fabric: FabricSpec) -> None:
    """Raise ApplianceResourceExhausted if the working part of a wafer is smaller than the region.

    One more row of PEs sends the weights.
    """
    if not engine.is_torch:
        Fabric(engine.rows + 1, engine.columns, fabric)


def check_layers(engine: EngineSpec, program: Program, fabric: FabricSpec) -> None:
    """Raise ApplianceResourceExhausted for a layer whose activations do not fit the region."""
    room = fabric.sram_bytes_per_pe - fabric.sram_reserved_bytes_per_pe
    for segment in program.segments:
        for op in segment.work:
            if engine.of(segment.layer, op.kind) == "torch" or op.kind != "matmul":
                continue
            needed = _bytes_of_pe(engine, op)
            if needed > room:
                raise ApplianceResourceExhausted(
                    "the activations of a layer must fit the region of its engine",
                    code="layer-beyond-region",
                    where=f"{segment.layer}, {op.op}",
                    value=f"{needed} bytes for each of {engine.rows} x {engine.columns} PEs",
                    rule=f"at most {room} bytes",
                    remedy="enlarge runtime.engine.rows or .columns, or use smaller micro-batches",
                )


def _bytes_of_pe(engine: EngineSpec, op: OpWork) -> int:
    """Return the bytes that a streamed product takes on the fullest PE: inputs, outputs, sums."""
    if not op.streams:
        return 0
    batch, rows, inner, columns = op.shape
    tokens = ceil(batch * rows / engine.rows)
    features = ceil(inner / engine.columns) + ceil(columns / engine.columns)
    return _SUM_BYTES * tokens * (features + 2)


def operand_dtype(compute: str) -> str:
    """Return the type in which kernels of a precision hold their operands."""
    return "float32" if compute == "cbfloat16" else compute


def layer_regions(
    engine: EngineSpec,
    program: Program,
    dtype: str,
    *,
    densities: Densities = DENSE,
    counts: bool = False,
) -> tuple[LayerRegion, ...]:
    """Return the region of every segment, in the order of the schedule.

    Cycles are those of a WSE-2, whose order of sums engines have on every system.

    Args:
        engine: What computes the kernels.
        program: The step.
        dtype: Type of the operands of products; other kernels of engines are fp32.
        densities: Share of each sparse weight that is not zero.
        counts: Whether the simulator counts the cycles of kernels of ``wafer-cycles``, once each.
    """
    return tuple(
        _region(engine, segment, dtype, op_densities(segment, program, densities), counts)
        for segment in program.segments
    )


def _region(
    engine: EngineSpec, segment: Segment, dtype: str, densities: Sequence[float], counts: bool
) -> LayerRegion:
    grid = region_grid(engine.rows, engine.columns)
    named = [
        (engine.of(segment.layer, op.kind), op, density)
        for op, density in zip(segment.work, densities or repeat(1.0), strict=False)
    ]
    simulated = [
        call
        for name, op, density in named
        if name == "wafer-cycles"
        for call in calls_of(op, dtype, density)
    ]
    return LayerRegion(
        segment.layer,
        segment.phase,
        tuple(dict.fromkeys(name for name, op, _ in named if calls_of(op, dtype))) or ("torch",),
        engine.rows,
        engine.columns,
        _total(
            (op_cycles if name == "torch" else engine_cycles)(grid, op, dtype, density)
            for name, op, density in named
        ),
        _total(kernel_cycles(grid, call) for call in simulated),
        sum(counted_cycles(engine.rows, engine.columns, call) for call in simulated if counts),
    )


def _total(costs: Iterable[Cycles]) -> int:
    return round(sum(costs, Cycles()).total_cycles)


def regions_text(regions: tuple[LayerRegion, ...]) -> str:
    """Return a table of the regions for a log."""
    rows = [
        f"{each.layer:<24} {each.phase:<9} {', '.join(each.engines):<22} "
        f"{each.rows} x {each.columns} PEs {each.cycles:>12} cycles"
        for each in regions
    ]
    return "\n".join(["Engine and region of each layer, cycles of a micro-batch:", *rows])
