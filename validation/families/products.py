"""Replays of products: on one PE, by the SDK's SUMMA, by a student project, by He et al."""

from __future__ import annotations

from collections.abc import Mapping

from baselines.wafer_inference import PE_COSTS, Region
from baselines.wafer_inference.mesh import alignment_cycles, matmul_cycles, mesh_matvec_cycles
from validation.families.replay import CannotReplay
from validation.published_programs.products import (
    PROGRAMS,
    descriptor_gemm,
    single_pe_gemv,
    summa_multiply_add,
)
from validation.rows.cells import count
from validation.rows.kernel_rows import (
    cycles_per_unit,
    dtype_of,
    fabric_of,
    number_before,
    sdk_clock_hz,
)
from validation.rows.row import Row

_SUMMA_RATES: Mapping[str, float] = {
    "h2d": PROGRAMS.host_in_words_per_cycle,
    "d2h": PROGRAMS.host_out_words_per_cycle,
    "broadcast": PROGRAMS.broadcast_words_per_cycle,
}
"""Words per cycle of what SUMMA sends, by a word of the row's workload."""


def predict_single_pe_gemv(row: Row) -> float:
    """A matrix-vector product on each PE for itself."""
    fabric = fabric_of(row)
    unit = cycles_per_unit(row, sdk_clock_hz(fabric), "matvec")
    rows, columns = count(row, "M"), count(row, "K")
    return single_pe_gemv(fabric, rows, columns, dtype_of(row)).total_cycles / unit


def predict_mesh_gemv(row: Row) -> float:
    """MeshGEMV of He et al."""
    unit = cycles_per_unit(row, Region.clock_hz)
    region = _mesh_region(row)
    return mesh_matvec_cycles(count(row, "K"), count(row, "N"), region, PE_COSTS) / unit


def predict_gemm(row: Row) -> float:
    """MeshGEMM of He et al., or the student project's program, in fp32."""
    if "Mesh" in row.text("algorithm"):
        return _mesh_gemm(row)
    if "DSD kernels" not in row.text("algorithm"):
        raise CannotReplay(f"the program {row.text('algorithm')!r} is not known")
    if dtype_of(row) != "float32":
        raise CannotReplay(f"the program computes in fp32, not in {row.text('dtype')}")
    fabric = fabric_of(row)
    unit = cycles_per_unit(row, sdk_clock_hz(fabric))
    sides = (count(row, "grid_x"), count(row, "grid_y"))
    rows, inner, columns = (count(row, name) for name in ("M", "K", "N"))
    return descriptor_gemm(fabric, sides, rows, inner, columns).total_cycles / unit


def is_summa(row: Row) -> bool:
    """Whether a row is about a part of the SDK's SUMMA, not about a whole product."""
    words = f"{row.text('workload')} {row.text('algorithm')}" if row.kind == "kernels" else ""
    return ("SUMMA" in words or "memcpy" in words) and "GEMM" not in words


def predict_summa(row: Row) -> float:
    """A vector instruction, the start of a step, or what is sent."""
    workload, fabric = row.text("workload").lower(), fabric_of(row)
    rate = next((rate for word, rate in _SUMMA_RATES.items() if word in workload), None)
    if rate is not None and row.unit == "words/cycle":
        return rate
    unit = cycles_per_unit(row, sdk_clock_hz(fabric))
    if "fmacs" in workload:
        return summa_multiply_add(fabric, count(row, "M"), dtype_of(row)).total_cycles / unit
    if workload.startswith("setup"):
        return PROGRAMS.summa_step_cycles / unit
    words = number_before(row, "words")
    if rate is None or words is None:
        raise CannotReplay("the row does not give the number of words")
    return words / rate / unit


def _mesh_gemm(row: Row) -> float:
    """Tiles of A shift to where they start, then those of A and B from PE to PE."""
    unit = cycles_per_unit(row, Region.clock_hz)
    region = _mesh_region(row)
    m, k, n = (region.tile(count(row, name)) for name in ("M", "K", "N"))
    shifted = alignment_cycles(m * k, region, PE_COSTS)
    return (shifted + matmul_cycles(m, k, n, region, PE_COSTS)) / unit


def _mesh_region(row: Row) -> Region:
    """The row's square of PEs, the largest of the wafer where it names none.

    CannotReplay if something else than a product of He et al. ran.
    """
    words = f"{row.text('workload')} {row.text('algorithm')}"
    if "Mesh" not in words:
        raise CannotReplay(f"the program {row.text('algorithm')!r} is not known")
    if "whole program" in words:
        raise CannotReplay("what the whole program does beside its product is not published")
    fabric = fabric_of(row)
    return Region(row.integer("grid_x") or min(fabric.columns, fabric.rows), fabric)
