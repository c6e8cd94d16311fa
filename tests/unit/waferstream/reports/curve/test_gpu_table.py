"""The table of GPU clusters names strategies and leaves out what has no point."""

from __future__ import annotations

from tests.support.timing.gpu_points import gpu_points
from waferstream.reports.curve.gpu_table import gpu_table, gpu_text
from waferstream.reports.curve.result import GpuComparison, GpuCurve

GPUS = GpuComparison(
    (
        GpuCurve("A100", "ddp", gpu_points({1: 2.0, 8: 16.0})),
        GpuCurve("H100", "zero3", gpu_points({8: 0.0})),
        GpuCurve("H100", "tensor+pipeline", gpu_points({8: 40.0, 1024: 3000.0})),
    ),
    "a note",
)


def test_gpu_table_has_a_row_for_each_count_with_a_point() -> None:
    assert gpu_table(GPUS) == [
        ("GPUs", "A100 DDP", "H100 3D"),
        ("1", "2", "-"),
        ("8", "16", "40"),
        ("1,024", "-", "3,000"),
    ]


def test_gpu_text_ends_with_the_note() -> None:
    assert gpu_text(GPUS).splitlines()[-1] == "a note"
    assert gpu_text(GpuComparison((), "no curves")) == "no curves"
