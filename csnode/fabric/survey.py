"""What is left of a wafer with defects: a whole, smaller grid whose hops are longer.

Closed-form costs and placement know grids without gaps. A survey finds the largest one that works,
as ``csnode.fabric.placement`` would lay it out, and describes it as a wafer of its own.
"""

from __future__ import annotations

from csnode.fabric.defects import Defects, random_defects, read_defects
from csnode.fabric.placement import largest_region
from timing.hardware import DefectSpec, WaferSpec


def working_wafer(wafer: WaferSpec) -> WaferSpec:
    """The part of a wafer that programs see; the same wafer if nothing is defect.

    Cores and SRAM shrink with the grid, a hop takes the mean of what it takes now, rounded. Raises
    ConfigError for a map that cannot be read or lies outside of the wafer, and
    ApplianceResourceExhausted if nothing works.
    """
    if wafer.defects.is_none:
        return wafer
    whole = wafer.fabric
    rows, columns, mean_hops = largest_region(whole, _defects(wafer))
    hop_cycles = round(whole.hop_cycles * mean_hops)
    left = {"rows": rows, "columns": columns, "hop_cycles": hop_cycles}
    return wafer.model_copy(
        update={
            "fabric": whole.model_copy(update=left),
            "cores": wafer.cores * rows * columns // whole.num_pes,
            "sram_bytes": wafer.sram_bytes * rows * columns // whole.num_pes,
            "defects": DefectSpec(),
        }
    )


def _defects(wafer: WaferSpec) -> Defects:
    spec = wafer.defects
    if spec.map is not None:
        return read_defects(spec.map, wafer.fabric)
    return random_defects(wafer.fabric, spec.seed, spec.pe_yield, spec.link_yield)
