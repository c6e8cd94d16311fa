"""Interpret rows of wse_kernels.csv: wafer, PEs, vector lengths, clock."""

from __future__ import annotations

import re
from collections.abc import Callable
from math import ceil

from validation.rows.row import CannotPredict, Row, letters_of
from validation.rows.units import SECONDS, measure
from waferstream.core.errors import ConfigError
from waferstream.machine.hardware.fabric import WSE2, WSE3, WSE3_SIMULATOR, FabricSpec
from waferstream.machine.kernels.single_pe import wavelets

DTYPES = {
    "fp16": "float16",
    "f16": "float16",
    "bf16": "bfloat16",
    "fp32": "float32",
    "f32": "float32",
    "int8": "int8",
}


def of_workload(*words: str) -> Callable[[Row], bool]:
    """Return a test whether a kernel row's workload contains one of some lower-case words."""

    def knows(row: Row) -> bool:
        workload = row.text("workload").lower()
        return row.kind == "kernels" and any(word in workload for word in words)

    return knows


def fabric_of(row: Row) -> FabricSpec:
    """Return the grid of PEs of a row's system; a simulated WSE-3 has numbers of its own."""
    system = letters_of(row.text("system"))
    if "wse2" in system or system.startswith("cs2"):
        return WSE2
    if "wse3" in system or system.startswith("cs3"):
        return WSE3_SIMULATOR if row.evidence == "simulator" else WSE3
    raise CannotPredict(f"no numbers for a {row.text('system')}", code="system-unknown")


def is_plane(row: Row) -> bool:
    """Return whether a collective ran over rows and columns instead of along one line."""
    workload = row.text("workload").lower()
    is_wide = all((row.integer(side) or 1) > 1 for side in ("grid_x", "grid_y"))
    return "2d" in workload or ("1d" not in workload and is_wide)


def line_of(row: Row, fabric: FabricSpec) -> int:
    """Return the number of PEs of a row's line.

    Raises:
        ConfigError: The line is longer than the wafer's grid.
        CannotPredict: The row does not state the number, or it is 1.
    """
    sides = [row.integer(side) or 1 for side in ("grid_x", "grid_y")]
    pes = row.integer("num_pes") or (max(sides) if min(sides) == 1 else None)
    if pes is None or pes == 1:
        raise CannotPredict("the row gives no num_pes, or a single one", code="line-not-stated")
    if pes > max(fabric.columns, fabric.rows):
        raise _larger(row, fabric, "field num_pes", f"{pes} in a line")
    return pes


def sides_of(row: Row, fabric: FabricSpec) -> tuple[int, int]:
    """Return columns and rows of a row's grid of PEs.

    The grid may be turned by 90 degrees: sources choose freely which side of the wafer is x.

    Raises:
        ConfigError: The grid does not fit on the wafer.
        CannotPredict: The row does not state the grid, or it is a single PE.
    """
    columns, rows = row.count("grid_x"), row.count("grid_y")
    if columns == rows == 1:
        raise CannotPredict("a single PE has nothing to send", code="single-pe")
    narrow, wide = sorted((fabric.columns, fabric.rows))
    if min(columns, rows) > narrow or max(columns, rows) > wide:
        raise _larger(row, fabric, "fields grid_x and grid_y", f"{columns} x {rows}")
    return columns, rows


def _larger(row: Row, fabric: FabricSpec, fields: str, pes: str) -> ConfigError:
    rule = f"at most the usable grid of {fabric.columns} x {fabric.rows} PEs"
    return ConfigError(
        f"the number of PEs must be {rule}; got {pes}",
        code="more-pes-than-wafer",
        where=f"{row.place}, {fields}",
        value=pes,
        rule=rule,
    )


def dtype_of(row: Row) -> str:
    """Return the dtype of the elements; CannotPredict if it is unknown."""
    return row.choice("dtype", DTYPES)


def wavelets_of(row: Row, fabric: FabricSpec) -> int:
    """Return the wavelets of each PE's vector; without a dtype an element is a wavelet."""
    elements = row.count("vector_len")
    return ceil(wavelets(fabric, elements, dtype_of(row))) if row.text("dtype") else elements


def group_of(row: Row) -> int | None:
    """Return the PEs in a group of a two-phase reduce; None if the row names no group."""
    found = re.search(r"\bstep\s*=\s*([1-9]\d*)", f"{row.text('params')} {row.text('algorithm')}")
    return int(found[1]) if found else None


def number_before(row: Row, words: str) -> int | None:
    """Return the number before a word of workload, algorithm or params: ``6272 words``."""
    text = " ".join(row.text(column) for column in ("workload", "algorithm", "params"))
    found = re.search(rf"(\d+)[ -](?:{words})\b", text)
    return int(found[1]) if found else None


def sdk_clock_hz(fabric: FabricSpec) -> float:
    """Return the clock that SDK programs assume: csl-examples ``run.py``, 850 and 875 MHz."""
    return 0.85e9 if fabric == WSE2 else 0.875e9


def clock_hz(row: Row, default_hz: float) -> float:
    """Return the stated clock or else the default; CannotPredict if it is not positive."""
    stated = row.number("clock_ghz")
    if stated is not None and stated <= 0:
        raise CannotPredict(
            f"a clock must be positive; got {stated} GHz", code="clock-not-positive"
        )
    return default_hz if stated is None else stated * 1e9


def cycles_per_unit(row: Row, default_hz: float, per: str = "") -> float:
    """Return the cycles in one of the row's unit, which is cycles or a time.

    Args:
        row: The row.
        default_hz: Clock where the row states none.
        per: Divisor that the unit may have: ``matvec`` for cycles/matvec.

    Raises:
        CannotPredict: The unit is neither cycles nor a time.
    """
    quantity, *of_each = measure(row.unit).split("/")
    if of_each in ([], [per]):
        if quantity == "cycles":
            return 1.0
        if quantity in SECONDS:
            return SECONDS[quantity] * clock_hz(row, default_hz)
    raise CannotPredict(
        f"predictions are in cycles or a time, not in {row.unit}", code="unit-not-predicted"
    )
