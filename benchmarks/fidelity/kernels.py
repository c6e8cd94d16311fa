"""Replays of wse_kernels.csv: what one kernel takes, in cycles, from the closed forms.

Rows of the SDK's simulator and of silicon have the same forms; a WSE-3 has numbers of its own for
each (``fabric_of``). Which program a row ran is read from its column "algorithm".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from benchmarks.fidelity.cells import cell, count, in_unit
from benchmarks.fidelity.fit_kernels import fit_gemm, fit_gemv
from benchmarks.fidelity.kernel_rows import (
    dtype_of,
    fabric_of,
    group_of,
    line_of,
    of_workload,
    sides_of,
)
from benchmarks.fidelity.replay import CannotReplay, Family, Fit
from benchmarks.fidelity.rows import Row
from csnode.fabric.collectives.trees import auto_generated
from wsc.timing.hardware.fabric import FabricSpec
from wsc.timing.hardware.programs import PROGRAMS
from wsc.timing.kernels import collectives, hpdc, reduce_programs
from wsc.timing.kernels.point_to_point import message
from wsc.timing.kernels.product_programs import descriptor_gemm, single_pe_gemv, summa_multiply_add
from wsc.timing.kernels.single_pe import (
    VectorOp,
    elements_per_cycle,
    scalar_dot_cycles,
    vector_cycles,
)
from wsc.timing.kernels.stencil import star_stencil
from wsc.timing.regions.costs import PE_COSTS
from wsc.timing.regions.mesh import mesh_matvec_cycles
from wsc.timing.regions.shapes import Region

Form = Callable[[FabricSpec, int, float], float]


def _generated(fabric: FabricSpec, pes: int, wavelets: float) -> float:
    return auto_generated(pes, int(wavelets), fabric).cost(int(wavelets), fabric)


LINES: Mapping[str, Form] = {
    "star": collectives.star,
    "chain": collectives.chain,
    "tree": hpdc.tree,
    "two-phase": hpdc.two_phase,
    "two phase": hpdc.two_phase,
    "auto-gen": _generated,
    "autogen": _generated,
    "ring": collectives.ring_all_reduce,
    "broadcast": collectives.broadcast,
}
"""Forms of one line of PEs, as published, by a word of the algorithm."""
VECTOR_OPS: Mapping[str, VectorOp] = {
    "copy": "copy",
    "mov": "copy",
    "fma": "fma",
    "mac": "fma",
    "add": "add",
    "sub": "add",
    "mul": "multiply",
}
"""Vector ops by a word of the algorithm."""


def _collective(row: Row) -> float:
    in_unit(row, "cycles")
    algorithm = row.text("algorithm")
    fabric, wavelets = fabric_of(row), count(row, "vector_len")
    if "low_depth" in algorithm:
        return reduce_programs.low_depth_program(fabric, line_of(row, fabric), wavelets)
    if "two-phase" in algorithm and "step=" in row.text("params"):
        return reduce_programs.two_phase_program(
            fabric,
            line_of(row, fabric),
            wavelets,
            group_of(row),
            descriptors_loaded="reduce_2colors_dynamic" not in algorithm,
        )
    start = reduce_programs.start_cycles(fabric) if row.evidence == "simulator" else 0
    return start + _modelled(row, fabric, wavelets)


def _modelled(row: Row, fabric: FabricSpec, wavelets: int) -> float:
    """The HPDC'24 form that workload and algorithm name."""
    workload, algorithm = row.text("workload").lower(), row.text("algorithm").lower()
    if "2d" in workload:
        columns, rows = sides_of(row, fabric)
        if "snake" in algorithm:
            return collectives.snake_reduce(fabric, columns, rows, wavelets)
        if "broadcast" in workload:
            return collectives.broadcast_2d(fabric, columns, rows, wavelets)
        form = _line(algorithm)
        return form(fabric, columns, wavelets) + form(fabric, rows, wavelets)
    pes = line_of(row, fabric)
    form = _line(f"{algorithm} {workload}")
    cycles = form(fabric, pes, wavelets)
    is_all_reduce = "allreduce" in workload and form is not collectives.ring_all_reduce
    return cycles + (collectives.broadcast(fabric, pes, wavelets) if is_all_reduce else 0.0)


def _line(words: str) -> Form:
    for word, form in LINES.items():
        if word in words:
            return form
    raise CannotReplay(f"no form for the algorithm {words.strip()!r}")


def _point_to_point(row: Row) -> float:
    fabric = fabric_of(row)
    one = message(fabric, hops=1, wavelets=1)
    figures = {
        "cycles/hop": message(fabric, hops=2, wavelets=1) - one,
        "cycles/wavelet": message(fabric, hops=1, wavelets=2) - one,
        "cycles/turn": message(fabric, hops=1, wavelets=1, turns=1) - one,
        "cycles": message(fabric, hops=0, wavelets=0),
        "bytes/cycle/direction": float(fabric.wavelet_bytes),
    }
    if row.unit not in figures:
        raise CannotReplay(f"no figure in {row.unit}")
    return figures[row.unit]


def _vector_rate(row: Row) -> float:
    op = next((op for word, op in VECTOR_OPS.items() if word in row.text("algorithm")), None)
    if op is None:
        raise CannotReplay(f"no vector op {row.text('algorithm')!r}")
    rate = elements_per_cycle(fabric_of(row), op, dtype_of(row))
    return {"elements/cycle": rate, "cycles/element": 1 / rate}[
        in_unit(row, "elements/cycle", "cycles/element")
    ]


def _microbenchmark(row: Row) -> float:
    fabric = fabric_of(row)
    figures: dict[str, tuple[str, float]] = {
        "axpy": ("elements/cycle", elements_per_cycle(fabric, "fma", dtype_of(row))),
        "reduction": ("cycles/element", 1 / elements_per_cycle(fabric, "sum", dtype_of(row))),
        "scalar dot rolled": ("cycles/element", scalar_dot_cycles(fabric)),
        "taken branch": ("cycles", fabric.taken_branch_cycles),
        "DSR load-use": ("cycles", fabric.descriptor_use_cycles),
    }
    for words, (unit, figure) in figures.items():
        if row.text("algorithm").startswith(words):
            in_unit(row, unit)
            return figure
    raise CannotReplay("the row does not give the sizes or the code of this microbenchmark")


def _bank_conflict(row: Row) -> float:
    in_unit(row, "x slowdown")
    return fabric_of(row).bank_conflict_factor


def _multiply_add(row: Row) -> float:
    """Operands apart move at the memory's rate; operands in conflict at one element per cycle."""
    in_unit(row, "cycles")
    fabric, elements = fabric_of(row), count(row, "vector_len")
    apart = cell(row, "params").startswith("0.5 cycle/element")
    op: VectorOp = "copy" if apart else "fma"
    return vector_cycles(fabric, op, elements, dtype_of(row)).total_cycles


def _loop_form(row: Row) -> float:
    in_unit(row, "cycles")
    if not row.text("algorithm").startswith("L0"):
        raise CannotReplay("the row does not say how the loop is formed")
    elements = int(cell(row, "workload").split()[0])
    return vector_cycles(fabric_of(row), "fma", elements, dtype_of(row)).total_cycles


def _single_pe_gemv(row: Row) -> float:
    in_unit(row, "cycles per matvec")
    cycles = single_pe_gemv(fabric_of(row), count(row, "M"), count(row, "K"), dtype_of(row))
    return cycles.total_cycles


def _mesh_gemv(row: Row) -> float:
    """MeshGEMV, on the largest square of the wafer where the row names no grid."""
    in_unit(row, "ms", "us", "cycles")
    fabric = fabric_of(row)
    side = row.integer("grid_x") or min(fabric.columns, fabric.rows)
    region = Region(side, fabric)
    cycles = mesh_matvec_cycles(count(row, "K"), count(row, "N"), region, PE_COSTS)
    clock_ghz = row.number("clock_ghz") or region.clock_hz / 1e9
    return cycles / {"ms": clock_ghz * 1e6, "us": clock_ghz * 1e3, "cycles": 1.0}[row.unit]


def _summa(row: Row) -> float:
    workload = row.text("workload")
    if workload.startswith("per FMACS"):
        in_unit(row, "cycles")
        return summa_multiply_add(fabric_of(row), count(row, "M"), dtype_of(row)).total_cycles
    if workload.startswith("setup"):
        in_unit(row, "cycles")
        return float(PROGRAMS.summa_step_cycles)
    is_in = "H2D" in workload
    rate = PROGRAMS.host_in_words_per_cycle if is_in else PROGRAMS.host_out_words_per_cycle
    if row.unit == "words/cycle":
        return rate
    in_unit(row, "cycles")
    words = re.search(r"(\d+) words", workload)
    if words is None:
        raise CannotReplay("the row does not give the number of words")
    return int(words[1]) / rate


def _gemm(row: Row) -> float:
    if "DSD kernels" not in row.text("algorithm"):
        raise CannotReplay(f"the program {row.text('algorithm')!r} is not known")
    in_unit(row, "cycles")
    sides = (count(row, "grid_x"), count(row, "grid_y"))
    rows, inner, columns = (count(row, name) for name in ("M", "K", "N"))
    return descriptor_gemm(fabric_of(row), sides, rows, inner, columns).total_cycles


def _spmm(row: Row) -> float:
    raise CannotReplay(
        f"no form for {row.text('workload')}: index arithmetic and the fullest PE are not published"
    )


def _stencil(row: Row) -> float:
    """At 850 MHz, which the published share of busy cycles supports (timing model, caution 1)."""
    in_unit(row, "s per 1000 steps", "s per 100000 steps")
    depth = re.search(r"nz=(\d+)", row.text("params"))
    if depth is None:
        raise CannotReplay("the row does not give the cells per PE")
    steps = int(row.unit.split()[2])
    clock_hz = (row.number("clock_ghz") or 0.85) * 1e9
    return star_stencil(fabric_of(row), int(depth[1])).total_cycles * steps / clock_hz


FAMILIES: tuple[Family, ...] = (
    Family("collectives", of_workload("reduce", "broadcast"), _collective),
    Family("point to point", of_workload("noc ", "fabric link"), _point_to_point),
    Family("single PE", of_workload("single-pe dsd"), _vector_rate),
    Family("single PE", of_workload("single-pe microbenchmark"), _microbenchmark),
    Family("single PE", of_workload("bank conflict"), _bank_conflict),
    Family("single PE", of_workload("fmacs micro-test"), _multiply_add),
    Family("single PE", of_workload("loop forms"), _loop_form),
    Family("GEMV", of_workload("single-tile matvec"), _single_pe_gemv),
    Family("GEMV", of_workload("gemv"), _mesh_gemv),
    Family("GEMM", of_workload("fmacs of", "summa iteration", "memcpy"), _summa),
    Family("GEMM", of_workload("gemm"), _gemm),
    Family("SpMM", of_workload("spmm"), _spmm),
    Family("stencil", of_workload("25-point fd stencil"), _stencil),
)
FITS: tuple[Fit, ...] = (Fit("GEMV", fit_gemv), Fit("GEMM", fit_gemm))
