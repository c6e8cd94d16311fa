"""Closed-form costs of a segment."""

import pytest

from wsc.core.errors import ApplianceCompilationError
from wsc.core.program import OpWork
from wsc.timing.cost import segment_ps
from wsc.timing.hardware import CS2, CS3, FabricSpec, WaferSpec

EVEN = WaferSpec(
    cores=1000,
    clock_hz=10**9,
    flops_per_core_cycle=2,
    matmul_utilisation=0.5,
    sram_bandwidth_bytes_per_s=10**12,
    fabric=FabricSpec(columns=10, rows=20),
    segment_overhead_ps=100,
)


def test_arithmetic_is_flops_over_the_sustained_rate() -> None:
    """1000 cores x 2 flops x 1 GHz at half the peak: 10^12 flops take a second."""
    cost = segment_ps([OpWork("mm", "matmul", 10**12, 999)], EVEN)
    assert cost.compute_ps == 10**12


def test_other_ops_are_bytes_over_the_sram_bandwidth() -> None:
    """A terabyte at a terabyte per second takes a second, whatever its flops."""
    cost = segment_ps([OpWork("add", "elementwise", 5, 10**12)], EVEN)
    assert cost.compute_ps == 10**12


def test_overhead_counts_the_segment_and_each_kernel_but_no_view() -> None:
    """A kernel starts after one wavelet has crossed the 10 x 20 fabric: 30 ns at 1 GHz."""
    work = [OpWork("mm", "matmul", 0, 0), OpWork("add", "elementwise", 0, 0)]
    view = OpWork("view", "view", 7, 7)
    assert segment_ps([*work, view], EVEN).overhead_ps == 100 + 2 * 30_000
    assert segment_ps([view], EVEN) == (0, 100)


def test_a_cs3_computes_faster_than_a_cs2_by_the_ratio_of_their_peaks() -> None:
    """The published ratio between the systems on one model is 1.7 to 2.3."""
    work = [OpWork("mm", "matmul", 10**15, 0)]
    ratio = segment_ps(work, CS2).compute_ps / segment_ps(work, CS3).compute_ps
    assert 1.7 < ratio < 2.3


@pytest.mark.parametrize(
    "kind",
    [
        "matmul",
        "attention",
        "norm",
        "softmax",
        "elementwise",
        "reduction",
        "gather",
        "random",
        "copy",
    ],
)
def test_every_family_of_ops_but_views_costs_time(kind: str) -> None:
    """No kernel of a program that compiles is for nothing."""
    assert segment_ps([OpWork("op", kind, 10**6, 10**6)], CS2).compute_ps > 0


def test_an_unknown_kind_is_refused_by_name() -> None:
    """The error names the op, its kind and the kinds there are."""
    with pytest.raises(ApplianceCompilationError, match=r"fft(.|\n)*spectral(.|\n)*matmul"):
        segment_ps([OpWork("fft", "spectral", 1, 1)], CS2)
