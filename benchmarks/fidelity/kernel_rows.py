"""What rows of wse_kernels.csv say, in the words of the model."""

from __future__ import annotations

import re
from collections.abc import Callable

from benchmarks.fidelity.cells import choice, count
from benchmarks.fidelity.replay import CannotReplay
from benchmarks.fidelity.row_words import letters_of
from benchmarks.fidelity.rows import Row
from wsc.core.errors import ConfigError
from wsc.timing.hardware.fabric import WSE2, WSE3, WSE3_SIMULATOR, FabricSpec

DTYPES = {"fp16": "float16", "bf16": "bfloat16", "fp32": "float32", "int8": "int8"}


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


def line_of(row: Row, fabric: FabricSpec) -> int:
    """PEs of the line that a row ran on; ConfigError if it is longer than the wafer's grid."""
    pes = count(row, "num_pes")
    if pes > max(fabric.columns, fabric.rows):
        raise _larger(row, fabric, "field num_pes", f"{pes} in a line")
    return pes


def sides_of(row: Row, fabric: FabricSpec) -> tuple[int, int]:
    """Columns and rows of PEs that a row ran on; ConfigError if the wafer's grid holds no such.

    Either way round: which side of the wafer a source calls x is its own choice.
    """
    columns, rows = count(row, "grid_x"), count(row, "grid_y")
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


def group_of(row: Row) -> int:
    """PEs of a group of a two-phase reduce."""
    found = re.search(r"step=(\d+)", row.text("params"))
    if found is None or not int(found[1]):
        raise CannotReplay("the row gives no step")
    return int(found[1])
