"""How the constants of published programs follow from calibration rows.

Each kernel's constants enter linearly; they are the least squares over its rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean, linear_regression

from validation.published_programs.products import ProgramSpec, descriptor_gemm, single_pe_gemv
from validation.rows.cells import count
from validation.rows.kernel_rows import dtype_of, fabric_of
from validation.rows.row import Row
from wsc.core.errors import ConfigError


def fit_gemv(rows: Sequence[Row]) -> dict[str, float]:
    """The line over the columns through what the elements leave of each product on one PE."""
    maps = [row for row in rows if row.text("workload").startswith("single-tile")]
    columns = [count(row, "K") for row in maps]
    if len(set(columns)) < 2:
        raise ConfigError(
            "a line needs two points", where="GEMV", rule="single-tile rows of two sizes at least"
        )
    line = linear_regression(columns, [float(row.value) - _elements(row) for row in maps])
    return {
        "ProgramSpec.map_column_cycles": line.slope,
        "ProgramSpec.map_start_cycles": line.intercept,
    }


def fit_gemm(rows: Sequence[Row]) -> dict[str, float]:
    """Cycles per element that the products leave beside their set-up."""
    costs = [cost for row in rows if (cost := _per_element(row)) is not None]
    if not costs:
        raise ConfigError("no product to fit to", where="GEMM", rule="a row of the GEMM program")
    return {"ProgramSpec.strided_fma_cycles": fmean(costs)}


def _per_element(row: Row) -> float | None:
    if "DSD kernels" not in row.text("algorithm"):
        return None
    sides = (count(row, "grid_x"), count(row, "grid_y"))
    rows, inner, columns = (count(row, name) for name in ("M", "K", "N"))
    unit = ProgramSpec(strided_fma_cycles=1.0)
    form = descriptor_gemm(fabric_of(row), sides, rows, inner, columns, unit)
    return (float(row.value) - form.setup) / (form.compute + form.memory)


def _elements(row: Row) -> float:
    return single_pe_gemv(fabric_of(row), count(row, "M"), count(row, "K"), dtype_of(row)).compute
