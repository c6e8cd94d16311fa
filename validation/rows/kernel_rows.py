"""What rows of wse_kernels.csv say, in the words of the model."""

from __future__ import annotations

import re
from collections.abc import Callable
from math import ceil

from timing.hardware.fabric import WSE2, WSE3, WSE3_SIMULATOR, FabricSpec
from timing.kernels.single_pe import wavelets
from validation.families.replay import CannotReplay
from validation.rows.cells import choice, count
from validation.rows.row import Row
from validation.rows.row_words import letters_of
from validation.rows.units import SECONDS, measure
from wsc.core.errors import ConfigError

DTYPES = {
    "fp16": "float16",
    "f16": "float16",
    "bf16": "bfloat16",
    "fp32": "float32",
    "f32": "float32",
    "int8": "int8",
}


def of_workload(*words: str) -> Callable[[Row], bool]:
    """Whether a kernel row's workload holds one of some (lower-case) words."""

    def knows(row: Row) -> bool:
        workload = row.text("workload").lower()
        return row.kind == "kernels" and any(word in workload for word in words)

    return knows


def fabric_of(row: Row) -> FabricSpec:
    """The grid of PEs that a row ran on; a simulated WSE-3 is not a real one."""
    system = letters_of(row.text("system"))
    if "wse2" in system or system.startswith("cs2"):
        return WSE2
    if "wse3" in system or system.startswith("cs3"):
        return WSE3_SIMULATOR if row.evidence == "simulator" else WSE3
    raise CannotReplay(f"no numbers for a {row.text('system')}")


def is_plane(row: Row) -> bool:
    """Whether a collective ran over rows and columns, not along one line."""
    workload = row.text("workload").lower()
    is_wide = all((row.integer(side) or 1) > 1 for side in ("grid_x", "grid_y"))
    return "2d" in workload or ("1d" not in workload and is_wide)


def line_of(row: Row, fabric: FabricSpec) -> int:
    """PEs of the line that a row ran on; ConfigError if it is longer than the wafer's grid.

    CannotReplay if the row does not tell, or if there is nobody to talk to.
    """
    sides = [row.integer(side) or 1 for side in ("grid_x", "grid_y")]
    pes = row.integer("num_pes") or (max(sides) if min(sides) == 1 else None)
    if pes is None or pes == 1:
        raise CannotReplay("the row gives no num_pes, or a single one")
    if pes > max(fabric.columns, fabric.rows):
        raise _larger(row, fabric, "field num_pes", f"{pes} in a line")
    return pes


def sides_of(row: Row, fabric: FabricSpec) -> tuple[int, int]:
    """Columns and rows of PEs that a row ran on; ConfigError if the wafer's grid holds no such.

    Either way round: which side of the wafer a source calls x is its own choice. CannotReplay if
    the row does not tell, or if there is nobody to talk to.
    """
    columns, rows = count(row, "grid_x"), count(row, "grid_y")
    if columns == rows == 1:
        raise CannotReplay("a single PE has nothing to send")
    narrow, wide = sorted((fabric.columns, fabric.rows))
    if min(columns, rows) > narrow or max(columns, rows) > wide:
        raise _larger(row, fabric, "fields grid_x and grid_y", f"{columns} x {rows}")
    return columns, rows


def _larger(row: Row, fabric: FabricSpec, fields: str, pes: str) -> ConfigError:
    return ConfigError(
        "the row asks for more PEs than the wafer has",
        where=f"{row.place}, {fields}",
        value=pes,
        rule=f"at most the usable grid of {fabric.columns} x {fabric.rows} PEs",
    )


def dtype_of(row: Row) -> str:
    """The dtype of the elements."""
    return choice(row, "dtype", DTYPES)


def wavelets_of(row: Row, fabric: FabricSpec) -> int:
    """Wavelets that carry the row's vector of each PE; without a dtype its words."""
    elements = count(row, "vector_len")
    return ceil(wavelets(fabric, elements, dtype_of(row))) if row.text("dtype") else elements


def group_of(row: Row) -> int | None:
    """PEs of a group of a two-phase reduce; None if the row names none."""
    found = re.search(r"\bstep\s*=\s*([1-9]\d*)", f"{row.text('params')} {row.text('algorithm')}")
    return int(found[1]) if found else None


def number_before(row: Row, words: str) -> int | None:
    """The number in front of a word of workload, algorithm or params: ``6272 words``."""
    text = " ".join(row.text(column) for column in ("workload", "algorithm", "params"))
    found = re.search(rf"(\d+)[ -](?:{words})\b", text)
    return int(found[1]) if found else None


def sdk_clock_hz(fabric: FabricSpec) -> float:
    """As programs of the SDK count (timing model, caution 1)."""
    return 0.85e9 if fabric == WSE2 else 0.875e9


def clock_hz(row: Row, default_hz: float) -> float:
    """The clock that a row states, or else the default; CannotReplay if it does not run."""
    stated = row.number("clock_ghz")
    if stated is not None and stated <= 0:
        raise CannotReplay(f"a clock of {stated} GHz does not run")
    return default_hz if stated is None else stated * 1e9


def cycles_per_unit(row: Row, default_hz: float, per: str = "") -> float:
    """How many cycles one of the row's unit is: a cycle, or a time.

    ``default_hz``: the clock where the row states none; ``per``: what each of them is for, if the
    unit says so. CannotReplay for other units.
    """
    quantity, *of_each = measure(row.unit).split("/")
    if of_each in ([], [per]):
        if quantity == "cycles":
            return 1.0
        if quantity in SECONDS:
            return SECONDS[quantity] * clock_hz(row, default_hz)
    raise CannotReplay(f"the form gives cycles or a time, not {row.unit}")
