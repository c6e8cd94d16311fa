"""Cost of vector instructions and loops on one PE.

A vector instruction takes ``setup + elements / rate`` cycles (K0078 to K0085). An instruction on
its own pays its setup in full. In a loop, the next instruction is prepared while one runs, so only
the issue slot (K0133) and the loop's own instructions remain.
"""

from __future__ import annotations

from math import ceil
from typing import Literal

from waferstream.core.program.program import BYTES_PER_ELEMENT
from waferstream.machine.hardware.fabric import FabricSpec
from waferstream.machine.kernels.grid import Cycles

VectorOp = Literal["copy", "add", "multiply", "fma", "sum"]

HALF_BYTES = 2
"""Size of a 16-bit number, for which a PE has the faster rates."""


def elements_per_cycle(fabric: FabricSpec, op: VectorOp, dtype: str) -> float:
    """Return the rate of a vector instruction whose operands lie in different banks.

    Addition and multiplication read and write as much as a multiply-add and run at its rate (K0101:
    an fp16 addition at four elements per cycle; Jacquelin et al., table I: one element per cycle
    for each of FADD, FMUL and FMA in fp32). ``sum`` adds all elements into one: each addition waits
    for the one before.

    Args:
        op: Kind of the instruction.
        dtype: A key of BYTES_PER_ELEMENT; more than 16 bits run at the 32-bit rate.
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
    """Return the cost of one vector instruction over ``elements``, on its own.

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
    """Return the cost of one multiply-add of a vector by a scalar, in a loop or triggered.

    A wavelet may trigger it. Whole cycles: the unused part of the last one is lost.
    """
    work = ceil(elements / elements_per_cycle(fabric, "fma", dtype))
    return Cycles(compute=work, setup=fabric.triggered_cycles)


def wavelets(fabric: FabricSpec, elements: float, dtype: str) -> float:
    """Return the wavelets that carry ``elements``; two 16-bit values share one."""
    return elements * BYTES_PER_ELEMENT[dtype] / fabric.wavelet_bytes


def scalar_dot_cycles(fabric: FabricSpec) -> int:
    """Return the cycles per element of a dot product in a scalar loop (compare K0110).

    The loop tests at its head and jumps back from its end. In between, it addresses each of two
    values in two instructions and loads it, waits for the multiplication and the addition, and
    steps and compares the counter.
    """
    branches = fabric.untaken_branch_cycles + fabric.taken_branch_cycles
    loads, counter = 2 * 3, 2
    return branches + loads + 2 * fabric.serial_add_cycles + counter
