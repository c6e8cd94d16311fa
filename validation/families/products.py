"""Predict matrix products: on one PE, by the SDK's SUMMA, by a student project, by He et al."""

from __future__ import annotations

from collections.abc import Mapping

from validation.published_programs.products import (
    PROGRAMS,
    descriptor_gemm,
    single_pe_gemv,
    summa_multiply_add,
)
from validation.rows.kernels import (
    cycles_per_unit,
    dtype_of,
    fabric_of,
    number_before,
    sdk_clock_hz,
)
from validation.rows.row import CannotPredict, Row
from waferstream.machine.regions.mesh import (
    alignment_cycles,
    matmul_cycles,
    mesh_matvec_cycles,
)
from waferstream.machine.regions.region import PE_COSTS, Region

_SUMMA_RATES: Mapping[str, float] = {
    "h2d": PROGRAMS.host_in_words_per_cycle,
    "d2h": PROGRAMS.host_out_words_per_cycle,
    "broadcast": PROGRAMS.broadcast_words_per_cycle,
}
"""Words per cycle of the transfers of SUMMA, by a word of the row's workload."""


def predict_single_pe_gemv(row: Row) -> float:
    """Predict a matrix-vector product on a single PE."""
    fabric = fabric_of(row)
    unit = cycles_per_unit(row, sdk_clock_hz(fabric), "matvec")
    rows, columns = row.count("M"), row.count("K")
    return single_pe_gemv(fabric, rows, columns, dtype_of(row)).total_cycles / unit


def predict_mesh_gemv(row: Row) -> float:
    """Predict MeshGEMV of He et al."""
    unit = cycles_per_unit(row, Region.clock_hz)
    region = _mesh_region(row)
    return mesh_matvec_cycles(row.count("K"), row.count("N"), region, PE_COSTS).total / unit


def predict_gemm(row: Row) -> float:
    """Predict MeshGEMM of He et al., or the student project's program in fp32."""
    if "Mesh" in row.text("algorithm"):
        return _mesh_gemm(row)
    if "DSD kernels" not in row.text("algorithm"):
        raise _unknown_program(row)
    if dtype_of(row) != "float32":
        raise CannotPredict(
            f"the program computes in fp32, not in {row.text('dtype')}", code="program-in-fp32"
        )
    fabric = fabric_of(row)
    unit = cycles_per_unit(row, sdk_clock_hz(fabric))
    sides = (row.count("grid_x"), row.count("grid_y"))
    rows, inner, columns = (row.count(name) for name in ("M", "K", "N"))
    return descriptor_gemm(fabric, sides, rows, inner, columns).total_cycles / unit


def is_summa(row: Row) -> bool:
    """Return whether a row is about a part of the SDK's SUMMA instead of a whole product."""
    words = f"{row.text('workload')} {row.text('algorithm')}" if row.kind == "kernels" else ""
    return ("SUMMA" in words or "memcpy" in words) and "GEMM" not in words


def predict_summa(row: Row) -> float:
    """Predict a vector instruction, the start of a step, or a transfer of SUMMA."""
    workload, fabric = row.text("workload").lower(), fabric_of(row)
    rate = next((rate for word, rate in _SUMMA_RATES.items() if word in workload), None)
    if rate is not None and row.unit == "words/cycle":
        return rate
    unit = cycles_per_unit(row, sdk_clock_hz(fabric))
    if "fmacs" in workload:
        return summa_multiply_add(fabric, row.count("M"), dtype_of(row)).total_cycles / unit
    if workload.startswith("setup"):
        return PROGRAMS.summa_step_cycles / unit
    words = number_before(row, "words")
    if rate is None or words is None:
        raise CannotPredict("the row does not give the number of words", code="words-not-stated")
    return words / rate / unit


def _mesh_gemm(row: Row) -> float:
    """Sum the alignment shift of the tiles of A and the systolic product of A and B."""
    unit = cycles_per_unit(row, Region.clock_hz)
    region = _mesh_region(row)
    m, k, n = (region.tile(row.count(name)) for name in ("M", "K", "N"))
    shifted = alignment_cycles(m * k, region, PE_COSTS)
    return (shifted + matmul_cycles(m, k, n, region, PE_COSTS).total) / unit


def _mesh_region(row: Row) -> Region:
    """Return the row's square of PEs, by default the largest of the wafer.

    Raises CannotPredict if the row ran anything else than a product of He et al.
    """
    words = f"{row.text('workload')} {row.text('algorithm')}"
    if "Mesh" not in words:
        raise _unknown_program(row)
    if "whole program" in words:
        raise CannotPredict(
            "the parts of the whole program beside its product are not published",
            code="program-not-published",
        )
    fabric = fabric_of(row)
    return Region(row.integer("grid_x") or min(fabric.columns, fabric.rows), fabric)


def _unknown_program(row: Row) -> CannotPredict:
    return CannotPredict(
        f"the program {row.text('algorithm')!r} is not known", code="program-unknown"
    )
