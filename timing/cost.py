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
from heapq import heapify, heapreplace
from typing import NamedTuple

from timing.hardware import WaferSpec
from timing.kernels import Cycles, Grid
from timing.kernels.op_costs import Form, form_of
from timing.kernels.tensors import attention
from wsc.core.program import OpWork, Program
from wsc.core.units import PS_PER_S

MOST_REPLICAS_PER_ROW = 10
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

    All are costed in the program's stream dtype, whatever the graph computes them in (see the top
    of this file). Segments that share their work, as those of a ScalableProgram do, are looked at
    once. Raises ApplianceCompilationError for an op of a family that has no cost.
    """
    works = {id(segment.work): segment.work for segment in program.segments}
    times = Counter(id(segment.work) for segment in program.segments)
    ops = {id(op): op for work in works.values() for op in work if op.kind != "view"}
    form = {key: form_of(op) for key, op in ops.items()}
    forms = {key: [form[id(op)] for op in work if id(op) in form] for key, work in works.items()}
    counts: Counter[Form] = Counter()
    for key, each in forms.items():
        for found in each:
            counts[found] += times[key]
    cycles = _on_best_grid(counts, wafer, program.stream_dtype)[1]
    known = {
        key: _segment_cost([cycles[found] for found in each], wafer) for key, each in forms.items()
    }
    return [known[id(segment.work)] for segment in program.segments]


def best_grid(counts: Mapping[OpWork, int], wafer: WaferSpec, dtype: str) -> Grid:
    """The layout on which ops, each as often as ``counts`` says, take the fewest cycles."""
    forms: Counter[Form] = Counter()
    for op, count in counts.items():
        forms[form_of(op)] += count
    return _on_best_grid(forms, wafer, dtype)[0]


def _on_best_grid(
    counts: Mapping[Form, int], wafer: WaferSpec, dtype: str
) -> tuple[Grid, Mapping[Form, Cycles]]:
    """The same for ops of these forms, and what each form takes there.

    Cycles are added up on the layout that has the fewest so far, until one has those of all ops;
    the ops that take longest on the first layout come first, so that one that is far off is given
    up after a few.
    """
    layouts = layouts_on(wafer, dtype)
    first = {form: layouts[0].cycles(form) for form in counts}
    forms = sorted(counts, key=lambda form: -counts[form] * first[form].total_cycles)
    found = [[first[form] for form in forms], *([] for _ in layouts[1:])]
    total = sum(counts[form] * first[form].total_cycles for form in forms)
    queue = [*((0.0, which) for which in range(1, len(layouts))), (total, 0)]
    heapify(queue)
    while True:
        total, which = queue[0]
        done = found[which]
        if len(done) == len(forms):
            return layouts[which].grid, dict(zip(forms, done, strict=True))
        form = forms[len(done)]
        done.append(layouts[which].cycles(form))
        heapreplace(queue, (total + counts[form] * done[-1].total_cycles, which))


class Layout:
    """What ops cost on one grid, at the efficiency of their family.

    Only the tokens of the fullest PE count, of which many micro-batches have as many; so what was
    asked for is remembered.
    """

    def __init__(self, grid: Grid, wafer: WaferSpec, dtype: str) -> None:
        self.grid = grid
        self._wafer = wafer
        self._dtype = dtype
        self._known: dict[Form, Cycles] = {}

    def cycles(self, form: Form) -> Cycles:
        """What the ops of a form take."""
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
    """The layouts to choose from, with all that was asked of them."""
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
