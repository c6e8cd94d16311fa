"""What rows of wse_kernels.csv say, in the words of the model."""

from __future__ import annotations

import re
from collections.abc import Callable

from benchmarks.fidelity.cells import choice
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
    return choice(row, "dtype", DTYPES)


def group_of(row: Row) -> int:
    """PEs of a group of a two-phase reduce."""
    found = re.search(r"step=(\d+)", row.text("params"))
    if found is None or not int(found[1]):
        raise CannotReplay("the row gives no step")
    return int(found[1])
