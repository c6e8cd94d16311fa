"""What the segments of a program cost on the wafer.

Each op has a closed form in cycles, derived from how its kernel is mapped onto the grid
(``timing.kernels``). Published training runs take longer than the forms, which know an op alone
on a healthy, perfectly scheduled wafer, so three constants of ``WaferSpec`` make up for it, fitted
once for all models: the efficiency of attention, that of all other kernels, and a fixed time for
each segment. A fourth, ``software_speed``, tells releases of the vendor's software apart.

Every op is costed in the dtype that the program streams in, 16 bit as a rule, even where the graph
computes it in fp32 (losses, an explicit fp32 softmax). That is deliberate: at the rates of fp32 the
rows that the constants were fitted on fit worse, 2.8 % on average instead of 2.4 %. Sums along the
fabric and statistics of norms are fp32 by their forms.

All layers share one layout of the activations, so that nothing moves between them: the one of which
the whole step takes the fewest cycles.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from timing.hardware import WaferSpec
from timing.kernels import Cycles, Grid
from timing.kernels.op_costs import CostFunction, cost_function_of
from timing.kernels.tensors import attention
from wsc.core.program import OpWork, Program
from wsc.core.units import PS_PER_S

MOST_REPLICAS_PER_ROW = 10
"""Most copies of the hidden dimension side by side in a row of PEs."""


class SegmentCost(NamedTuple):
    """Time of one segment for one micro-batch on one system."""

    compute_ps: int
    overhead_ps: int

    @property
    def total_ps(self) -> int:
        return self.compute_ps + self.overhead_ps


def segment_costs(program: Program, wafer: WaferSpec) -> list[SegmentCost]:
    """Return the cost of each segment for one micro-batch.

    All ops are costed in the program's stream dtype, whatever the graph computes them in (see the
    top of this file). Raises ApplianceCompilationError for an op of a kind without a cost.
    """
    # Layers repeat: there are many segments, a few different lists of ops, and fewer cost functions
    works = Counter(segment.work for segment in program.segments)
    forms = {work: [cost_function_of(op) for op in work if op.kind != "view"] for work in works}
    counts: Counter[CostFunction] = Counter()
    for work, count in works.items():
        for form in forms[work]:
            counts[form] += count
    _, cycles = _on_best_grid(counts, wafer, program.stream_dtype)
    costs = {
        work: _segment_cost([cycles[form] for form in each], wafer) for work, each in forms.items()
    }
    return [costs[segment.work] for segment in program.segments]


def best_grid(counts: Mapping[OpWork, int], wafer: WaferSpec, dtype: str) -> Grid:
    """Return the layout on which ops, each as often as ``counts`` says, take the fewest cycles."""
    forms: Counter[CostFunction] = Counter()
    for op, count in counts.items():
        forms[cost_function_of(op)] += count
    return _on_best_grid(forms, wafer, dtype)[0]


def _on_best_grid(
    counts: Mapping[CostFunction, int], wafer: WaferSpec, dtype: str
) -> tuple[Grid, Mapping[CostFunction, Cycles]]:
    """Return the layout with the fewest cycles in all, and what each cost function takes there.

    Most layouts are far off. So the ops that take longest on the first layout are added up first,
    and a layout is given up as soon as it takes more than the best one so far.
    """
    first, *others = layouts_on(wafer, dtype)
    best_cycles = {form: first.cycles(form) for form in counts}
    forms = sorted(counts, key=lambda form: -counts[form] * best_cycles[form].total_cycles)
    best, fewest = first, sum(counts[form] * best_cycles[form].total_cycles for form in forms)
    for layout in others:
        cycles: dict[CostFunction, Cycles] = {}
        total = 0.0
        for form in forms:
            cycles[form] = layout.cycles(form)
            total += counts[form] * cycles[form].total_cycles
            if total >= fewest:
                break
        else:
            best, fewest, best_cycles = layout, total, cycles
    return best.grid, best_cycles


class Layout:
    """Cycles of ops on one grid, divided by the efficiency of their kind.

    Cycles depend only on the tokens of the fullest PE. Many micro-batch sizes have the same number
    of these, so results are kept.
    """

    def __init__(self, grid: Grid, wafer: WaferSpec, dtype: str) -> None:
        self.grid = grid
        self._wafer = wafer
        self._dtype = dtype
        self._known: dict[CostFunction, Cycles] = {}

    def cycles(self, form: CostFunction) -> Cycles:
        """Return the cycles of an op with this cost function."""
        seen = form.on(self.grid)
        cycles = self._known.get(seen)
        if cycles is None:
            is_attention = form.kernel is attention
            wafer = self._wafer
            efficiency = wafer.attention_efficiency if is_attention else wafer.kernel_efficiency
            cycles = seen.cycles(self.grid, self._dtype) * (1 / efficiency)
            self._known[seen] = cycles
        return cycles


@lru_cache(maxsize=16)
def layouts_on(wafer: WaferSpec, dtype: str) -> Sequence[Layout]:
    """Return the layouts to choose from; they keep the cycles of all ops costed so far."""
    columns = wafer.fabric.columns
    replicas_per_row = range(1, min(MOST_REPLICAS_PER_ROW, columns) + 1)
    grids = (Grid(wafer.fabric, columns // count) for count in replicas_per_row)
    return [Layout(grid, wafer, dtype) for grid in grids]


def _segment_cost(ops: Iterable[Cycles], wafer: WaferSpec) -> SegmentCost:
    total = sum(ops, Cycles())
    ps_per_cycle = PS_PER_S / wafer.clock_hz / wafer.software_speed
    return SegmentCost(
        compute_ps=round((total.total_cycles - total.setup) * ps_per_cycle),
        overhead_ps=round(
            total.setup * ps_per_cycle + wafer.segment_overhead_ps / wafer.software_speed
        ),
    )
