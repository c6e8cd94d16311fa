"""Vector instructions and loops on one PE."""

from __future__ import annotations

import pytest

from waferstream.machine.hardware.fabric import WSE2, WSE3, WSE3_SIMULATOR
from waferstream.machine.kernels.single_pe import (
    elements_per_cycle,
    scalar_dot_cycles,
    vector_cycles,
)


def test_vector_cycles_are_setup_and_elements() -> None:
    """K0114: 4096 fp16 multiply-adds in 1040 cycles; silicon is slower (K0083)."""
    assert vector_cycles(WSE3_SIMULATOR, "fma", 4096, "float16").total_cycles == 1040
    assert vector_cycles(WSE3, "fma", 4096, "float16").total_cycles == pytest.approx(1419, abs=1)


def test_vector_cycles_in_one_bank() -> None:
    """K0089: 1.94 times the elements' cycles; the SDK's simulator does not model it."""
    for fabric, factor in ((WSE3, 1.94), (WSE3_SIMULATOR, 1.0)):
        apart, together = (
            vector_cycles(fabric, "add", 100, "float32", same_bank=same) for same in (False, True)
        )
        assert together.compute + together.memory == pytest.approx(factor * apart.compute)


def test_elements_per_cycle_depends_on_op_and_dtype() -> None:
    """Four 16-bit elements per cycle, one in fp32; each addition of a serial sum waits (K0106)."""
    assert elements_per_cycle(WSE2, "fma", "bfloat16") == 4
    assert elements_per_cycle(WSE2, "fma", "float32") == 1
    assert elements_per_cycle(WSE2, "sum", "float16") == 0.5


def test_scalar_dot_cycles_add_up() -> None:
    """Two branches, two loads of three instructions, multiply and add, and the counter (K0110)."""
    assert scalar_dot_cycles(WSE3_SIMULATOR) == (3 + 6) + 2 * 3 + (2 + 2) + 2
