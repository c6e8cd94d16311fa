"""Predictions of kernel rows on one PE and between PEs."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.timing.reference_rows import kernel_row, predict_kernel
from validation.rows.row import CannotPredict


def test_silicon_and_simulator_of_a_wse_3_differ() -> None:
    """K0092 and K0095: a turn takes 33 cycles in the simulator, 20 on silicon."""
    turn = {"workload": "NoC point-to-point", "algorithm": "per turn", "unit": "cycles/turn"}
    assert predict_kernel(kernel_row(**turn, system="WSE-3 (Cerebras SDK simulator)")) == 33
    assert predict_kernel(kernel_row(**turn, system="CS-3 (WSE-3)", evidence="silicon")) == 20


def test_single_pe_rows_have_their_cost_functions() -> None:
    """K0083, K0104, K0114 and K0242."""
    silicon = {"system": "CS-3 (WSE-3)", "evidence": "silicon", "dtype": "fp16"}
    vector = kernel_row("single-PE DSD vector op", "elements/cycle", algorithm="fma", **silicon)
    assert predict_kernel(vector) == 2.92
    simulator = {"system": "WSE-3 (Cerebras SDK simulator)", "dtype": "fp16"}
    axpy = kernel_row(
        "single-PE microbenchmark", "elements/cycle", algorithm="axpy fmach", **simulator
    )
    assert predict_kernel(axpy) == 4
    loop = kernel_row("4096 fp16 FMA loop forms", algorithm="L0 single DSD op", **simulator)
    assert predict_kernel(loop) == 1040
    apart = kernel_row(
        "fmacs micro-test, 5124 elements", vector_len=5124, params="0.5 cycle/element variant"
    )
    assert predict_kernel(apart) == pytest.approx(2597, rel=0.01)


def test_message_is_the_sum_of_its_parts() -> None:
    """Fixed part, hops, turns and wavelets (K0097)."""
    wse3: dict[str, Any] = {"system": "CS-3 (WSE-3)", "evidence": "silicon"}
    fixed = predict_kernel(kernel_row("NoC fixed cost", algorithm="noc_model FIXED", **wse3))
    words = "send to task, 8 words, 3 hops, 1 turn"
    assert fixed == 33
    message = predict_kernel(kernel_row("NoC point-to-point", algorithm=words, **wse3))
    assert message == 33 + 3 * 2 + 20 + 8 * 1.125


@pytest.mark.parametrize(
    ("workload", "unit", "columns", "predicted"),
    [
        ("single-PE DSD vector op", "cycles", {"algorithm": "setup"}, 16),
        ("single-PE DSD vector op", "bytes/cycle", {"algorithm": "copy"}, 2 * 4.82),
        ("single-PE local move", "bytes/cycle", {}, 2 * 4.82),
        ("single-PE DSD vector op", "cycles/element", {"algorithm": "reduction faddh"}, 2),
        ("single-PE DSD vector op", "elements/cycle", {"algorithm": "fma, same bank"}, 2.92 / 1.94),
        ("single-PE microbenchmark", "cycles", {"algorithm": "untaken branch"}, 3),
        ("single-PE microbenchmark", "cycles", {"algorithm": "dependent FP"}, 2),
        ("fabric link", "B/cycle", {"algorithm": "stream"}, 4),
    ],
)
def test_single_pe_figures_are_known_in_other_words(
    workload: str, unit: str, columns: dict[str, Any], predicted: float
) -> None:
    """Constants of a WSE-3 that other rows of the same source would use."""
    wse3 = {"system": "CS-3 (WSE-3)", "evidence": "silicon", "dtype": "fp16"}
    assert predict_kernel(kernel_row(workload, unit, **wse3, **columns)) == pytest.approx(predicted)


def test_multiply_add_follows_the_banks_of_its_operands() -> None:
    """K0241 and K0242; operands in one bank take twice as long."""
    times = [
        predict_kernel(
            kernel_row("fmacs micro-test, 5124 elements", params=f"{rate}/element variant")
        )
        for rate in ("0.5 cycle", "1 cycle", "2 cycles")
    ]
    assert times == sorted(times)
    assert times[2] == pytest.approx(2 * times[1], rel=0.05)
    with pytest.raises(CannotPredict) as reason:
        predict_kernel(kernel_row("fmacs micro-test, 5124 elements", params="1.5 cycles/element"))
    assert reason.value.code == "operands-not-stated"


def test_stencil_is_predicted_per_number_of_steps() -> None:
    """K0060 and K0074: the unit gives the number."""
    stencil = {"workload": "25-point FD stencil, 3D acoustic wave", "system": "CS-2 (WSE-2)"}
    some = predict_kernel(
        kernel_row(**stencil, unit="s per 1000 steps", params="nz=1000; 1000 time steps")
    )
    many = predict_kernel(
        kernel_row(**stencil, unit="s per 100000 steps", params="nz=1000; block b=334")
    )
    assert some == pytest.approx(0.075, rel=0.07)
    assert many == pytest.approx(100 * some)
    each = predict_kernel(kernel_row(**stencil, unit="us per step", vector_len=1000))
    assert each == pytest.approx(1000 * some)


@pytest.mark.parametrize(
    ("workload", "unit", "columns", "code"),
    [
        ("1D reduce", "x speedup", {"algorithm": "chain"}, "unit-not-predicted"),
        ("1D reduce", "cycles", {"algorithm": "chain", "vector_len": 8}, "line-not-stated"),
        (
            "1D reduce",
            "cycles",
            {"algorithm": "sorcery", "vector_len": 8, "num_pes": 8},
            "no-cost-function",
        ),
        ("GEMV", "x speedup", {}, "unit-not-predicted"),
        ("GEMV", "ms", {"algorithm": "the vendor's GEMV", "K": 4096, "N": 4096}, "program-unknown"),
        (
            "MeshGEMV whole program P=4",
            "cycles",
            {"dtype": "fp16", "K": 64, "N": 64},
            "program-not-published",
        ),
        ("GEMM", "cycles", {"algorithm": "GEMM (DSD kernels)", "dtype": "fp16"}, "program-in-fp32"),
        (
            "SRAM bank conflict",
            "x slowdown",
            {"algorithm": "worst case"},
            "worst-case-not-modelled",
        ),
        ("NoC point-to-point", "cycles/turn", {"algorithm": "per turn"}, "turn-not-published"),
        ("NoC point-to-point", "cycles", {"algorithm": "send to receive"}, "message-not-stated"),
        ("fp16 FMA loop forms", "cycles", {"algorithm": "L0 single DSD op"}, "loop-not-stated"),
        ("MeshGEMV whole program P=4", "cycles", {"dtype": "fp16"}, "program-not-published"),
        ("GEMM", "cycles", {"algorithm": "Cannon"}, "program-unknown"),
        ("SpMM COO", "cycles", {}, "no-cost-function"),
        (
            "single-PE microbenchmark",
            "cycles/MAC",
            {"algorithm": "GEMV single tile"},
            "microbenchmark-unknown",
        ),
        ("4096 fp16 FMA loop forms", "cycles", {"algorithm": "L2"}, "loop-not-stated"),
        ("NoC point-to-point", "cycles/hop", {"system": "WSE-9"}, "system-unknown"),
        ("NoC point-to-point", "cycles/furlong", {}, "unit-not-predicted"),
        ("25-point FD stencil", "s per 1000 steps", {}, "cells-not-stated"),
        (
            "25-point FD stencil",
            "s per 1000 steps",
            {"params": "nz=9", "clock_ghz": "-1"},
            "clock-not-positive",
        ),
        (
            "1D reduce",
            "us",
            {"algorithm": "chain", "vector_len": 8, "num_pes": 8, "clock_ghz": 0},
            "clock-not-positive",
        ),
        ("25-point FD stencil", "% busy cycles", {"params": "nz=9"}, "unit-not-predicted"),
    ],
)
def test_kernel_rows_without_a_model_give_the_reason(
    workload: str, unit: str, columns: dict[str, object], code: str
) -> None:
    """A ratio, missing sizes, an unknown program or system: a reason, never a guess."""
    with pytest.raises(CannotPredict) as reason:
        predict_kernel(kernel_row(workload, unit, **columns))
    assert reason.value.code == code
