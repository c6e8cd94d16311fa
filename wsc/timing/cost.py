"""What a segment costs on the wafer: closed forms over operations and bytes.

Matrix products and attention are bound by arithmetic and reach a fitted share of the peak; all
other ops are bound by SRAM and move their operands and results once at the published bandwidth,
which is a lower bound. The fitted share was taken from whole training steps, so it holds whatever
those ops cost beyond that bound. The shape of an op does not enter: how well a layer fills the
grid, which makes measured utilisation rise from 0.23 at hidden size 1088 to 0.27 at 5120 (T0001,
T0017), is not modelled.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from wsc.core.errors import ApplianceCompilationError
from wsc.core.program import OpWork
from wsc.core.units import PS_PER_S, transfer_ps
from wsc.timing.hardware import WaferSpec

ARITHMETIC_KINDS = frozenset({"matmul", "attention"})
MEMORY_KINDS = frozenset(
    {"norm", "softmax", "elementwise", "reduction", "gather", "random", "copy"}
)
FREE_KINDS = frozenset({"view"})


class SegmentCost(NamedTuple):
    """Time of one segment for one micro-batch on one system."""

    compute_ps: int
    overhead_ps: int

    @property
    def total_ps(self) -> int:
        return self.compute_ps + self.overhead_ps


def segment_ps(work: Sequence[OpWork], wafer: WaferSpec) -> SegmentCost:
    """Time that the ops of a segment compute, and time that starting them takes.

    Raises ApplianceCompilationError for an op of a kind that has no cost.
    """
    for op in work:
        _check_kind(op)
    flops = sum(op.flops for op in work if op.kind in ARITHMETIC_KINDS)
    moved_bytes = sum(op.num_bytes for op in work if op.kind in MEMORY_KINDS)
    kernels = sum(op.kind not in FREE_KINDS for op in work)
    return SegmentCost(
        compute_ps=arithmetic_ps(flops, wafer)
        + transfer_ps(moved_bytes, wafer.sram_bandwidth_bytes_per_s),
        overhead_ps=wafer.segment_overhead_ps + kernels * wafer.kernel_overhead_ps,
    )


def arithmetic_ps(flops: int, wafer: WaferSpec) -> int:
    """Time of matrix products at the sustained rate, rounded up."""
    sustained_flops_per_s = int(wafer.peak_flops_per_s * wafer.matmul_utilisation)
    return -(-flops * PS_PER_S // sustained_flops_per_s)


def _check_kind(op: OpWork) -> None:
    known = ARITHMETIC_KINDS | MEMORY_KINDS | FREE_KINDS
    if op.kind not in known:
        raise ApplianceCompilationError(
            "an op has no cost on the emulated clock",
            where=op.op,
            value=op.kind,
            rule=f"kinds: {', '.join(sorted(known))}",
        )
