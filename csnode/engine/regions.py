"""Regions of the wafer that an engine uses: what fits, and what a report says of each layer."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from csnode.engine.spec import EngineName, EngineSpec
from csnode.fabric.region import Fabric
from timing.hardware.fabric import FabricSpec
from timing.kernels import Cycles, Grid
from timing.kernels.op_costs import op_cycles
from wsc.core.errors import ApplianceResourceExhausted
from wsc.core.program import OpWork, Program, Segment

_SUM_BYTES = 4


@dataclass(frozen=True)
class LayerRegion:
    """Where the kernels of one segment run, and their cycles by the closed forms."""

    layer: str
    phase: str
    engines: tuple[EngineName, ...]
    rows: int
    columns: int
    cycles: int


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


def layer_regions(
    engine: EngineSpec, program: Program, fabric: FabricSpec
) -> tuple[LayerRegion, ...]:
    """Return the region of every segment, in the order of the schedule."""
    size = {"rows": engine.rows, "columns": engine.columns}
    grid = Grid.whole(fabric.model_copy(update=size))
    return tuple(
        _region(engine, segment, grid, program.stream_dtype) for segment in program.segments
    )


def _region(engine: EngineSpec, segment: Segment, grid: Grid, dtype: str) -> LayerRegion:
    engines = dict.fromkeys(engine.of(segment.layer, op.kind) for op in segment.work)
    cost = sum((op_cycles(grid, op, dtype) for op in segment.work), Cycles())
    return LayerRegion(
        segment.layer,
        segment.phase,
        tuple(engines),
        engine.rows,
        engine.columns,
        round(cost.total_cycles),
    )


def regions_text(regions: tuple[LayerRegion, ...]) -> str:
    """Return a table of the regions for a log."""
    rows = [
        f"{each.layer:<24} {each.phase:<9} {', '.join(each.engines):<22} "
        f"{each.rows} x {each.columns} PEs {each.cycles:>12} cycles"
        for each in regions
    ]
    return "\n".join(["Engine and region of each layer, cycles of a micro-batch:", *rows])
