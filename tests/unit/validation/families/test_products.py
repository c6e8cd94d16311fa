"""Predictions of matrix products on many PEs."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.timing.reference_rows import kernel_row, predict_kernel
from validation.rows.row import CannotPredict


def test_summa_rows_are_parts_of_the_program() -> None:
    """Its broadcast is no collective of HPDC'24."""
    summa: dict[str, Any] = {"algorithm": "SUMMA"}
    assert predict_kernel(kernel_row("broadcast of tiles", "words/cycle", **summa)) == 0.975
    assert predict_kernel(kernel_row("broadcast of 195 words", **summa)) == pytest.approx(200)
    assert predict_kernel(kernel_row("memcpy H2D 868 words", "us", **summa)) == pytest.approx(
        1000 / 850
    )
    with pytest.raises(CannotPredict) as reason:
        predict_kernel(kernel_row("whole iteration", **summa))
    assert reason.value.code == "words-not-stated"


def test_mesh_gemm_takes_longer_on_fewer_pes() -> None:
    """The product of prefill, by itself."""
    product: dict[str, Any] = {"algorithm": "MeshGEMM", "M": 4096, "K": 4096, "N": 4096}
    times = [
        predict_kernel(kernel_row("GEMM", "ms", grid_x=side, **product)) for side in (240, 480, 720)
    ]
    assert times == sorted(times, reverse=True)
    at_peak_s = 2 * 4096**3 / (720**2 * 8 * 1.1e9)
    assert times[-1] * 1e-3 > at_peak_s


def test_mesh_gemv_matches_the_measurement() -> None:
    """K0552: 1.2 us at 1.1 GHz for 16384 x 16384 in fp16; nothing was fitted to it."""
    gemv = {"workload": "GEMV", "unit": "ms", "algorithm": "MeshGEMV", "dtype": "fp16"}
    predicted = predict_kernel(kernel_row(**gemv, K=16384, N=16384, clock_ghz=1.1))
    assert predicted == pytest.approx(0.0012, rel=0.06)
