"""Fit the constants of published kernels to their cycles."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean, linear_regression

from validation.fit.calibration import Constants, Fit
from validation.published_programs.products import ProgramSpec, descriptor_gemm, single_pe_gemv
from validation.rows.kernels import dtype_of, fabric_of
from validation.rows.row import Row
from waferstream.core.errors import ConfigError


def fit_gemv(rows: Sequence[Row]) -> Constants:
    """Fit a line over the columns to the cycles beyond the elements of products on one PE."""
    maps = [row for row in rows if row.text("workload").startswith("single-tile")]
    columns = [row.count("K") for row in maps]
    if len(set(columns)) < 2:
        raise ConfigError(
            "a line needs two points",
            code="too-few-sizes",
            where="GEMV",
            rule="single-tile rows of at least two sizes",
        )
    line = linear_regression(columns, [float(row.value) - _elements(row) for row in maps])
    return {
        "ProgramSpec.map_column_cycles": line.slope,
        "ProgramSpec.map_start_cycles": line.intercept,
    }


def fit_gemm(rows: Sequence[Row]) -> Constants:
    """Fit the cycles per element of products beyond their set-up."""
    costs = [cost for row in rows if (cost := _per_element(row)) is not None]
    if not costs:
        raise ConfigError(
            "there is no product to fit to",
            code="no-calibration-row",
            where="GEMM",
            rule="a row of the GEMM program",
        )
    return {"ProgramSpec.strided_fma_cycles": fmean(costs)}


def _per_element(row: Row) -> float | None:
    if "DSD kernels" not in row.text("algorithm"):
        return None
    sides = (row.count("grid_x"), row.count("grid_y"))
    rows, inner, columns = (row.count(name) for name in ("M", "K", "N"))
    unit = ProgramSpec(strided_fma_cycles=1.0)
    cost = descriptor_gemm(fabric_of(row), sides, rows, inner, columns, unit)
    return (float(row.value) - cost.setup) / (cost.compute + cost.memory)


def _elements(row: Row) -> float:
    return single_pe_gemv(fabric_of(row), row.count("M"), row.count("K"), dtype_of(row)).compute


FITS: tuple[Fit, ...] = (
    Fit("GEMV", fit_gemv),
    Fit("GEMM", fit_gemm),
)
