"""What the segments of a program cost on the wafer.

Each op has a closed form in cycles, derived from how its kernel is mapped onto the grid
(``wsc.timing.kernels``). Published training runs take longer than the forms, which know an op alone
on a healthy, perfectly scheduled wafer, so three constants of ``WaferSpec`` make up for it, fitted
once for all models: the efficiency of attention, that of all other kernels, and a fixed time for
each segment. A fourth, ``software_speed``, tells releases of the vendor's software apart.

All layers share one layout of the activations, so that nothing moves between them: the one of which
the whole step takes the fewest cycles.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from heapq import heapreplace
from typing import NamedTuple

from wsc.core.program import OpWork, Program
from wsc.core.units import PS_PER_S
from wsc.timing.hardware import WaferSpec
from wsc.timing.kernels import Cycles, Grid
from wsc.timing.kernels.table import op_cycles

ARITHMETIC_KINDS = frozenset({"matmul", "attention"})
"""Families whose operations count as the model's arithmetic."""

MOST_STRETCHES = 10
"""How often at most the hidden dimension lies side by side in a row of PEs."""


class SegmentCost(NamedTuple):
    """Time of one segment for one micro-batch on one system."""

    compute_ps: int
    overhead_ps: int

    @property
    def total_ps(self) -> int:
        return self.compute_ps + self.overhead_ps


def segment_costs(program: Program, wafer: WaferSpec) -> list[SegmentCost]:
    """Time that the ops of each segment compute, and time that starting them takes.

    Segments that share their work, as those of a ScalableProgram do, are looked at once. Raises
    ApplianceCompilationError for an op of a family that has no cost.
    """
    works = {id(segment.work): segment.work for segment in program.segments}
    times = Counter(id(segment.work) for segment in program.segments)
    counts: Counter[OpWork] = Counter()
    for key, work in works.items():
        for op, count in Counter(_priced(work)).items():
            counts[op] += count * times[key]
    cycles = _on_best_grid(counts, wafer, program.stream_dtype)[1]
    known = {
        key: _segment_cost([cycles[op] for op in _priced(work)], wafer)
        for key, work in works.items()
    }
    return [known[id(segment.work)] for segment in program.segments]


def best_grid(counts: Mapping[OpWork, int], wafer: WaferSpec, dtype: str) -> Grid:
    """The layout on which ops, each as often as ``counts`` says, take the fewest cycles."""
    return _on_best_grid(counts, wafer, dtype)[0]


def _on_best_grid(
    counts: Mapping[OpWork, int], wafer: WaferSpec, dtype: str
) -> tuple[Grid, Mapping[OpWork, Cycles]]:
    """The same, and what each op takes there.

    Cycles are added up on the layout that has the fewest so far, the longest ops first, until one
    has them all: a layout that is far off is given up after a few ops.
    """
    columns = wafer.fabric.columns
    stretches = range(1, min(MOST_STRETCHES, columns) + 1)
    grids = [Grid(wafer.fabric, columns // count) for count in stretches]
    ops = sorted(counts, key=lambda op: -counts[op] * op.flops)
    cycles: list[dict[OpWork, Cycles]] = [{} for _ in grids]
    queue = [(0.0, which) for which in range(len(grids))]
    while True:
        total, which = queue[0]
        done = cycles[which]
        if len(done) == len(ops):
            return grids[which], done
        op = ops[len(done)]
        done[op] = _slowed(op, op_cycles(grids[which], op, dtype), wafer)
        heapreplace(queue, (total + counts[op] * done[op].total_cycles, which))


def _priced(work: Sequence[OpWork]) -> Iterable[OpWork]:
    return (op for op in work if op.kind != "view")


def _slowed(work: OpWork, cycles: Cycles, wafer: WaferSpec) -> Cycles:
    """The closed form of an op at the efficiency of its family."""
    is_attention = work.kind == "attention"
    efficiency = wafer.attention_efficiency if is_attention else wafer.kernel_efficiency
    return cycles * (1 / efficiency)


def _segment_cost(ops: Iterable[Cycles], wafer: WaferSpec) -> SegmentCost:
    total = sum(ops, Cycles())
    ps_per_cycle = PS_PER_S / wafer.clock_hz / wafer.software_speed
    return SegmentCost(
        compute_ps=round((total.total_cycles - total.setup) * ps_per_cycle),
        overhead_ps=round(
            total.setup * ps_per_cycle + wafer.segment_overhead_ps / wafer.software_speed
        ),
    )
