"""Predict rows of wse_kernels.csv: the cycles of one kernel, from closed forms.

Rows of the SDK's simulator and of silicon share the closed forms; a WSE-3 has separate numbers for
each (``rows.kernels.fabric_of``). The column ``algorithm`` names the program of a row.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from validation.families.collectives import is_collective, predict_collective
from validation.families.prediction import Family
from validation.families.products import (
    is_summa,
    predict_gemm,
    predict_mesh_gemv,
    predict_single_pe_gemv,
    predict_summa,
)
from validation.published_programs.communication import message
from validation.published_programs.products import star_stencil
from validation.rows.kernels import (
    clock_hz,
    cycles_per_unit,
    dtype_of,
    fabric_of,
    number_before,
    of_workload,
    sdk_clock_hz,
)
from validation.rows.row import CannotPredict, Row
from validation.rows.units import SECONDS, in_unit, measure
from waferstream.core.program.program import BYTES_PER_ELEMENT
from waferstream.machine.kernels.single_pe import (
    VectorOp,
    elements_per_cycle,
    scalar_dot_cycles,
    vector_cycles,
)

VECTOR_OPS: Mapping[str, VectorOp] = {
    "reduction": "sum",
    "copy": "copy",
    "mov": "copy",
    "axpy": "fma",
    "fma": "fma",
    "mac": "fma",
    "add": "add",
    "sub": "add",
    "mul": "multiply",
}
"""Vector ops by a word of the algorithm."""


def _point_to_point(row: Row) -> float:
    fabric = fabric_of(row)
    one = message(fabric, hops=1, wavelets=1)
    figures = {
        "cycles/hop": message(fabric, hops=2, wavelets=1) - one,
        "cycles/wavelet": message(fabric, hops=1, wavelets=2) - one,
        "cycles/turn": message(fabric, hops=1, wavelets=1, turns=1) - one,
        "B/cycle": float(fabric.wavelet_bytes),
        "bytes/cycle": float(fabric.wavelet_bytes),
        "bytes/cycle/direction": float(fabric.wavelet_bytes),
    }
    figure = figures.get(measure(row.unit))
    if figure == 0:
        raise CannotPredict(
            "no published work counts cycles for a turn on this wafer", code="turn-not-published"
        )
    if figure is not None:
        return figure
    unit = cycles_per_unit(row, sdk_clock_hz(fabric))
    return _message_cycles(row) / unit


def _message_cycles(row: Row) -> float:
    """Return the cycles of a whole message, or the fixed cycles of every message."""
    if "fixed" in f"{row.text('workload')} {row.text('algorithm')}".lower():
        return message(fabric_of(row), hops=0, wavelets=0)
    hops = number_before(row, "hops?")
    wavelets = row.integer("vector_len") or number_before(row, "words?|wavelets?")
    if hops is None or wavelets is None:
        raise CannotPredict(
            "the row does not give hops and wavelets of the message", code="message-not-stated"
        )
    return message(fabric_of(row), hops, wavelets, number_before(row, "turns?") or 0)


def _vector_rate(row: Row) -> float:
    fabric = fabric_of(row)
    algorithm = f"{row.text('algorithm')} {row.text('workload')}".lower()
    if "setup" in algorithm:
        return fabric.vector_setup_cycles / cycles_per_unit(row, sdk_clock_hz(fabric))
    op = next((op for word, op in VECTOR_OPS.items() if word in algorithm), None)
    if op is None:
        raise CannotPredict(f"no vector op {row.text('algorithm')!r}", code="vector-op-unknown")
    dtype = dtype_of(row)
    rate = elements_per_cycle(fabric, op, dtype)
    if re.search("same.bank|conflict", algorithm):
        rate /= fabric.bank_conflict_factor
    figures = {"elements/cycle": rate, "cycles/element": 1 / rate}
    if op == "copy":
        figures["bytes/cycle"] = figures["B/cycle"] = rate * BYTES_PER_ELEMENT[dtype]
    return figures[in_unit(row, *figures)]


def _microbenchmark(row: Row) -> float:
    fabric = fabric_of(row)
    figures: dict[str, tuple[str, float]] = {
        "axpy": ("elements/cycle", elements_per_cycle(fabric, "fma", dtype_of(row))),
        "reduction": ("cycles/element", 1 / elements_per_cycle(fabric, "sum", dtype_of(row))),
        "scalar dot rolled": ("cycles/element", scalar_dot_cycles(fabric)),
        "taken branch": ("cycles", fabric.taken_branch_cycles),
        "untaken branch": ("cycles", fabric.untaken_branch_cycles),
        "not-taken branch": ("cycles", fabric.untaken_branch_cycles),
        "dependent": ("cycles", fabric.serial_add_cycles),
        "DSR load-use": ("cycles", fabric.descriptor_use_cycles),
    }
    for words, (unit, figure) in figures.items():
        if row.text("algorithm").startswith(words):
            in_unit(row, unit)
            return figure
    raise CannotPredict(
        "the row does not give the sizes or the code of this microbenchmark",
        code="microbenchmark-unknown",
    )


def _bank_conflict(row: Row) -> float:
    in_unit(row, "x slowdown", "x")
    if "worst" in row.text("algorithm"):
        raise CannotPredict("only the typical slowdown is modelled", code="worst-case-not-modelled")
    return fabric_of(row).bank_conflict_factor


def _multiply_add(row: Row) -> float:
    """Predict at the rate that the row names: of memory, of arithmetic, or of a single bank."""
    fabric, dtype = fabric_of(row), dtype_of(row)
    elements = (
        row.integer("vector_len") or number_before(row, "elements?") or row.count("vector_len")
    )
    rate = re.match(r"(0\.5|1|2) cycles?/element", row.stated("params"))
    if rate is None:
        raise CannotPredict(
            "the row does not give the memory banks of its operands", code="operands-not-stated"
        )
    op: VectorOp = "copy" if rate[1] == "0.5" else "fma"
    cycles = vector_cycles(fabric, op, elements, dtype, same_bank=rate[1] == "2")
    return cycles.total_cycles / cycles_per_unit(row, sdk_clock_hz(fabric))


def _loop(row: Row) -> float:
    fabric = fabric_of(row)
    unit = cycles_per_unit(row, sdk_clock_hz(fabric))
    elements = re.match(r"\d+", row.text("workload"))
    if elements is None or not row.text("algorithm").startswith("L0"):
        raise CannotPredict("the row does not give the code of the loop", code="loop-not-stated")
    return vector_cycles(fabric, "fma", int(elements[0]), dtype_of(row)).total_cycles / unit


def _spmm(row: Row) -> float:
    raise CannotPredict(
        f"no cost function of {row.text('workload')}: index arithmetic and the load of the fullest"
        " PE are not published",
        code="no-cost-function",
    )


def _stencil(row: Row) -> float:
    """Predict at 850 MHz, which the published share of busy cycles supports (docs/fidelity.md)."""
    unit = re.fullmatch(r"(s|ms|us)(?:/| per )(\d*) ?(?:time )?steps?", row.unit)
    if unit is None:
        raise CannotPredict(
            f"predictions are in time per number of steps, not in {row.unit}",
            code="unit-not-predicted",
        )
    depth = re.search(r"nz=(\d+)", row.text("params"))
    cells = int(depth[1]) if depth else row.integer("vector_len")
    if cells is None:
        raise CannotPredict("the row does not give the cells per PE", code="cells-not-stated")
    fabric = fabric_of(row)
    cycles = star_stencil(fabric, cells).total_cycles * int(unit[2] or 1)
    return cycles / clock_hz(row, sdk_clock_hz(fabric)) / SECONDS[unit[1]]


FAMILIES: tuple[Family, ...] = (
    Family("collectives", is_collective, predict_collective),
    Family("point to point", of_workload("noc ", "fabric link"), _point_to_point),
    Family("single PE", of_workload("single-pe dsd", "local move"), _vector_rate),
    Family("single PE", of_workload("single-pe microbenchmark"), _microbenchmark),
    Family("single PE", of_workload("bank conflict"), _bank_conflict),
    Family("single PE", of_workload("fmacs micro-test"), _multiply_add),
    Family("single PE", of_workload("loop forms"), _loop),
    Family("GEMV", of_workload("single-tile matvec"), predict_single_pe_gemv),
    Family("GEMV", of_workload("gemv"), predict_mesh_gemv),
    Family("GEMM", is_summa, predict_summa),
    Family("GEMM", of_workload("gemm"), predict_gemm),
    Family("SpMM", of_workload("spmm"), _spmm),
    Family("stencil", of_workload("25-point fd stencil"), _stencil),
)
