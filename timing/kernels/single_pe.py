"""Vector instructions and loops on one PE.

A vector instruction takes ``setup + elements / rate`` cycles (K0078 to K0085). Its setup is paid
in full when an instruction stands alone; in a loop the next one is prepared while one runs, and
what is left is the issue slot (K0133) and the loop's own instructions.
"""

from __future__ import annotations

from math import ceil
from typing import Literal

from timing.hardware.fabric import FabricSpec
from timing.kernels.grid import Cycles
from wsc.core.program import BYTES_PER_ELEMENT

VectorOp = Literal["copy", "add", "multiply", "fma", "sum"]

HALF_BYTES = 2


def elements_per_cycle(fabric: FabricSpec, op: VectorOp, dtype: str) -> float:
    """Rate of a vector instruction whose operands lie in different banks.

    ``dtype`` is a name of BYTES_PER_ELEMENT; dtypes wider than 16 bit run at the 32-bit rate.
    Addition and multiplication read and write as much as a multiply-add and run at its rate
    (K0101: a fp16 addition at four elements per cycle; Jacquelin et al., table I: one element per
    cycle for each of FADD, FMUL and FMA in fp32). ``sum`` adds all elements into one: each
    addition waits for the one before.
    """
    if op == "sum":
        return 1 / fabric.serial_add_cycles
    half = BYTES_PER_ELEMENT[dtype] <= HALF_BYTES
    if op == "copy":
        return fabric.copy_16bit_per_cycle if half else fabric.copy_32bit_per_cycle
    return fabric.fma_16bit_per_cycle if half else fabric.fma_32bit_per_cycle


def vector_cycles(
    fabric: FabricSpec, op: VectorOp, elements: float, dtype: str, *, same_bank: bool = False
) -> Cycles:
    """One vector instruction over ``elements``, on its own.

    ``same_bank``: its operands collide in one bank of SRAM (K0089).
    """
    work = elements / elements_per_cycle(fabric, op, dtype)
    stalls = work * (fabric.bank_conflict_factor - 1) if same_bank else 0.0
    moves = op == "copy"
    return Cycles(
        compute=0.0 if moves else work,
        memory=(work if moves else 0.0) + stalls,
        setup=fabric.vector_setup_cycles,
    )


def axpy_cycles(fabric: FabricSpec, elements: int, dtype: str) -> Cycles:
    """One multiply-add of a vector by a scalar that stands in a loop or that a wavelet triggers.

    Whole cycles: what is left of the last one is lost.
    """
    work = ceil(elements / elements_per_cycle(fabric, "fma", dtype))
    return Cycles(compute=work, setup=fabric.triggered_cycles)


def wavelets(fabric: FabricSpec, elements: float, dtype: str) -> float:
    """Wavelets that carry ``elements``: two 16-bit values ride in one."""
    return elements * BYTES_PER_ELEMENT[dtype] / fabric.wavelet_bytes


def scalar_dot_cycles(fabric: FabricSpec) -> int:
    """Cycles per element of a dot product in a scalar loop.

    The loop tests at its head and jumps back from its end. In between, each of two values is
    addressed in two instructions and loaded, multiply and add wait for each other, and the counter
    is stepped and compared. Compare K0110.
    """
    branches = fabric.untaken_branch_cycles + fabric.taken_branch_cycles
    loads, counter = 2 * 3, 2
    return branches + loads + 2 * fabric.serial_add_cycles + counter
