"""Published programs for products, against measurements."""

from __future__ import annotations

import numpy as np
import pytest

from csnode.fabric import kernels
from csnode.fabric.dtypes import Dtype
from csnode.fabric.region import Fabric
from validation.published_programs.products import (
    descriptor_gemm,
    gemv,
    single_pe_gemv,
    star_stencil,
    summa,
    summa_multiply_add,
)
from waferstream.machine.hardware.fabric import WSE2, WSE3, FabricSpec
from waferstream.machine.kernels import Grid

machines = pytest.mark.parametrize("machine", [WSE2, WSE3], ids=["WSE-2", "WSE-3"])


@pytest.mark.parametrize(("rows", "cycles"), [(20, 458.8), (60, 3701.8), (100, 10144.8)])
def test_single_pe_gemv_matches_measurements(rows: int, cycles: float) -> None:
    """K0123, K0127 and K0131, with derived constants alone."""
    assert single_pe_gemv(WSE2, rows, rows, "float32").total_cycles == pytest.approx(cycles, 0.005)


def test_single_pe_gemv_pads_columns_to_lines() -> None:
    """30 fp32 rows take as long as 32 (K0124), and so do 30 fp16 rows."""
    assert single_pe_gemv(WSE2, 30, 30, "float32") == single_pe_gemv(WSE2, 32, 30, "float32")
    assert single_pe_gemv(WSE2, 25, 30, "float16") == single_pe_gemv(WSE2, 32, 30, "float16")
    assert single_pe_gemv(WSE2, 25, 30, "float16").compute == 30 * 32 / 4


def test_descriptor_gemm_matches_measurements() -> None:
    """K0138 and K0141: 48 x 64 calls of 64 elements, 8 x 64 calls of 128; derived constants."""
    assert descriptor_gemm(WSE2, (16, 12), 64, 768, 768).total_cycles == pytest.approx(477507, 0.03)
    assert descriptor_gemm(WSE2, (128, 8), 64, 1024, 1024).total_cycles == pytest.approx(
        150996, 0.03
    )


def test_summa_is_the_sum_of_its_steps() -> None:
    """K0133 and K0134: 58 cycles per multiply-add of 14, 120 per step; broadcasts are hidden."""
    assert summa_multiply_add(WSE2, 14, "float32").total_cycles == 58
    assert summa(WSE2, 4, (14, 14, 14), "float32").total_cycles == 4 * (14 * 14 * 58 + 120)


def test_summa_waits_for_slow_broadcasts() -> None:
    """Four axpys of 400 fp16 elements, 144 cycles each, and 800 words at 0.975 per cycle."""
    cycles = summa(WSE2, 4, (400, 4, 1), "float16")
    assert cycles.total_cycles == pytest.approx(4 * (800 / 0.975 + 120))
    assert cycles.compute == 4 * 4 * 400 / 4


def test_star_stencil_scales_with_the_rate() -> None:
    """43 instructions at twice the rate take half as long; all 60 have their set-up."""
    fast = WSE2.model_copy(update={"fma_32bit_per_cycle": 2.0})
    assert star_stencil(fast, 1000).compute == 43 * 1000 / 2
    assert star_stencil(fast, 1000).setup == 60 * 16


def test_star_stencil_is_near_measurements() -> None:
    """K0060: 75 us per step of 1000 cells at 850 MHz; no constant was fitted to it."""
    assert star_stencil(WSE2, 1000).total_cycles / 850 == pytest.approx(75, rel=0.07)


@machines
@pytest.mark.parametrize("columns", [1, 4, 9])
@pytest.mark.parametrize("tile", [(16, 16), (2, 32)])
def test_gemv_matches_the_simulator(
    machine: FabricSpec, columns: int, tile: tuple[int, int]
) -> None:
    """Within 2 %: one map over the inputs, then fp32 sums along the row if there is one."""
    matrix = np.ones((2 * tile[0], columns * tile[1]))
    taken = kernels.gemv(Fabric(2, columns, machine), matrix, matrix[0], Dtype.FP16).cycles
    grid = Grid.whole(machine.model_copy(update={"rows": 2, "columns": columns}))
    form = gemv(grid, *matrix.shape, "float16")
    assert form.total_cycles == pytest.approx(taken, rel=0.02)
