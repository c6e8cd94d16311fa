"""What rows of wse_kernels.csv say, in the words of the model."""

from __future__ import annotations

import re
from collections.abc import Callable

from benchmarks.fidelity.replay import CannotReplay
from benchmarks.fidelity.rows import Row
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
    system = row.text("system")
    if "WSE-2" in system:
        return WSE2
    if "WSE-3" in system:
        return WSE3_SIMULATOR if row.evidence == "simulator" else WSE3
    raise CannotReplay(f"no numbers for a {system}")


def dtype_of(row: Row) -> str:
    """The dtype of the elements."""
    name = row.text("dtype")
    if name not in DTYPES:
        raise CannotReplay(f"no dtype {name!r}")
    return DTYPES[name]


def cell(row: Row, column: str) -> str:
    """A cell that the form needs."""
    if text := row.text(column):
        return text
    raise CannotReplay(f"the row gives no {column}")


def count(row: Row, column: str) -> int:
    """A number of things that the form needs."""
    number = row.integer(column)
    if number is None:
        raise CannotReplay(f"the row gives no {column}")
    return number


def group_of(row: Row) -> int:
    """PEs of a group of a two-phase reduce."""
    found = re.search(r"step=(\d+)", row.text("params"))
    if found is None or not int(found[1]):
        raise CannotReplay("the row gives no step")
    return int(found[1])


def in_unit(row: Row, *units: str) -> str:
    """The row's unit; CannotReplay if the form gives none of it."""
    if row.unit not in units:
        raise CannotReplay(f"the form gives {' or '.join(units)}, not {row.unit}")
    return row.unit
