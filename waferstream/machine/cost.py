"""Cost of the segments of a program on the wafer.

Each op has a closed form in cycles, derived from the mapping of its kernel onto the grid
(``waferstream.machine.kernels``). Published training runs take longer than the closed forms, which
cost each op alone on a healthy, perfectly scheduled wafer. Three constants of ``WaferSpec``, fitted
once for all models and systems, account for the difference: the efficiency of attention, that of
all other kernels, and a fixed time for each segment. A fourth, ``software_speed``, is the speed of
the kernels of a CS-3, whose vector units are wider than what the SDK gets of them.

Every op is costed in the dtype that the program streams in, usually 16 bit, even where the graph
computes it in fp32 (losses, an explicit fp32 softmax). That is deliberate: at the rates of fp32,
rows fit worse. Sums along the fabric and statistics of norms are fp32 in their closed forms.

All layers share one layout of the activations, so nothing moves between them. It is the layout on
which the whole step takes the fewest cycles.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import repeat
from math import prod
from typing import Any, NamedTuple

from waferstream.core.program.program import Program
from waferstream.core.program.segment import OpWork
from waferstream.core.units import PS_PER_S
from waferstream.machine.densities import DENSE, Densities, op_densities
from waferstream.machine.hardware import WaferSpec
from waferstream.machine.hardware.fabric import FabricSpec
from waferstream.machine.kernels import Cycles, Grid
from waferstream.machine.kernels.op_costs import CostFunction, cost_function_of

MOST_REPLICAS_PER_ROW = 10
"""Most copies of the hidden dimension side by side in a row of PEs."""


class SegmentCost(NamedTuple):
    """Time of one segment for one micro-batch on one system."""

    compute_ps: int
    overhead_ps: int

    @property
    def total_ps(self) -> int:
        return self.compute_ps + self.overhead_ps


def segment_costs(
    program: Program,
    wafer: WaferSpec,
    densities: Densities = DENSE,
    gradients: Densities | None = None,
) -> list[SegmentCost]:
    """Return the cost of each segment for one micro-batch; zeros of sparse weights cost nothing.

    ``densities`` and ``gradients`` are those of ``op_densities``.

    All ops are costed in the program's stream dtype, whatever the graph computes them in (see the
    top of this file). Raises ApplianceCompilationError for an op of a kind without a cost.
    """
    # Layers repeat: there are many segments, a few different lists of ops, and fewer cost functions
    kinds = _kinds_of(program, densities, gradients)
    works = Counter(map(id, kinds))
    distinct = {id(kind): kind for kind in kinds}
    functions = {
        key: _functions_of(kind.ops, kind.densities, wafer.kernel_costs)
        for key, kind in distinct.items()
    }
    counts: Counter[CostFunction] = Counter()
    for key, count in works.items():
        for function in functions[key]:
            counts[function] += count * distinct[key].blocks
    _, cycles = _on_best_grid(counts, wafer, program.stream_dtype)
    costs = {
        key: _segment_cost([cycles[function] for function in each], wafer, distinct[key].blocks)
        for key, each in functions.items()
    }
    return [costs[id(kind)] for kind in kinds]


class _Kind(NamedTuple):
    """What costs a segment: the ops of one of its blocks, their densities, and the blocks."""

    ops: tuple[OpWork, ...]
    densities: tuple[float, ...]
    blocks: int


def _kinds_of(program: Program, densities: Densities, gradients: Densities | None) -> list[_Kind]:
    """Return what costs each segment; layers that share their ops share it.

    Ops are compared as objects, as to compare each of them takes longer than all the rest.
    """
    leaving = densities if gradients is None else gradients
    found: dict[tuple[Any, ...], _Kind] = {}
    kinds = []
    for each in program.segments:
        weights = (
            (
                program.parameter[n].num_elements,
                densities.get(n),
                leaving.get(n),
                n in each.gradients,
            )
            for n in (() if densities.keys().isdisjoint(each.weights) else each.weights)
        )
        key = (id(each.work), each.blocks, *weights)
        if key not in found:
            ops = work_by_token(each.work, program)
            if each.blocks > 1:
                ops = tuple(block_of(op, each.blocks, program.micro_batch_size) for op in ops)
            shares = op_densities(each, program, densities, gradients)
            found[key] = _Kind(ops, shares, each.blocks)
        kinds.append(found[key])
    return kinds


def work_by_token(work: tuple[OpWork, ...], program: Program) -> tuple[OpWork, ...]:
    """Return the ops of a segment with products of one row per sample computed for each token.

    A layer of tokens that is conditioned on something per sample (a diffusion transformer, on time
    and class) adds and multiplies it to each token. The wafer is taken to repeat the condition
    before the products, not after: of the two, this fits the measured speed (docs/fidelity.md).
    """
    samples = program.micro_batch_size
    rows = (op.shape[1] for op in work if _is_one_product(op) and op.streams)
    tokens = max(rows, default=0)
    if tokens <= samples:
        return work
    return tuple(_by_token(op, samples, tokens) for op in work)


def _by_token(op: OpWork, samples: int, tokens: int) -> OpWork:
    """Return a product of samples as one of tokens: rows, or the inner size of a gradient."""
    if not _is_one_product(op):
        return op
    batch, rows, inner, columns = op.shape
    if op.streams and rows == samples:
        return op._replace(shape=(batch, tokens, inner, columns))
    if not op.streams and inner == samples:
        return op._replace(shape=(batch, rows, tokens, columns))
    return op


def _is_one_product(op: OpWork) -> bool:
    return op.kind == "matmul" and op.shape[0] == 1


def block_of(op: OpWork, blocks: int, samples: int) -> OpWork:
    """Return an op as it runs on the largest of so many equal blocks of its tokens.

    Blocks are of whole samples, as long as there are samples; attention with fewer queries than
    that still reads all keys.
    """

    def part(extent: int) -> int:
        return max(1, -(-extent // blocks))

    if op.kind == "attention" or _is_of_activations(op):
        outer, rows, *others = op.shape
        if blocks <= samples:
            return op._replace(shape=(part(outer), rows, *others))
        return op._replace(shape=(outer, part(rows), *others))
    if op.kind == "matmul":
        batch, rows, inner, columns = op.shape
        if op.streams:
            return op._replace(shape=(batch, part(rows), inner, columns))
        return op._replace(shape=(batch, rows, part(inner), columns))
    if op.kind == "convolution":
        return op._replace(shape=(part(op.shape[0]), *op.shape[1:]))
    *outer_extents, hidden = op.shape or (1,)
    flops = part(op.flops) if op.kind == "reduction" and op.flops > 1 else op.flops
    return op._replace(shape=(part(prod(outer_extents)), hidden), flops=flops)


def _is_of_activations(op: OpWork) -> bool:
    """Return whether an op is a product of activations with activations, not with a gradient."""
    return op.op in ("bmm", "baddbmm") and not op.streams


def _functions_of(
    work: Sequence[OpWork], densities: Sequence[float], own_costs: str | None
) -> list[CostFunction]:
    """Return the cost functions of ops; without densities all their weights are dense."""
    pairs = zip(work, densities or repeat(1.0), strict=False)
    return [cost_function_of(op, density, own_costs) for op, density in pairs if op.kind != "view"]


def best_grid(counts: Mapping[OpWork, int], wafer: WaferSpec, dtype: str) -> Grid:
    """Return the layout on which ops, each as often as ``counts`` says, take the fewest cycles."""
    functions: Counter[CostFunction] = Counter()
    for op, count in counts.items():
        functions[cost_function_of(op, own_costs=wafer.kernel_costs)] += count
    return _on_best_grid(functions, wafer, dtype)[0]


def _on_best_grid(
    counts: Mapping[CostFunction, int], wafer: WaferSpec, dtype: str
) -> tuple[Grid, Mapping[CostFunction, Cycles]]:
    """Return the layout with the fewest cycles in all, and what each cost function takes there.

    Most layouts are far off. So the ops that take longest on the first layout are added up first,
    and a layout is given up as soon as it takes more than the best one so far.
    """
    first, *others = layouts_on(wafer, dtype)
    best_cycles = {function: first.cycles(function) for function in counts}
    functions = sorted(
        counts, key=lambda function: -counts[function] * best_cycles[function].total_cycles
    )
    fewest = sum(counts[function] * best_cycles[function].total_cycles for function in functions)
    best = first
    for layout in others:
        cycles: dict[CostFunction, Cycles] = {}
        total = 0.0
        for function in functions:
            cycles[function] = layout.cycles(function)
            total += counts[function] * cycles[function].total_cycles
            if total >= fewest:
                break
        else:
            best, fewest, best_cycles = layout, total, cycles
    return best.grid, best_cycles


class Efficiencies(NamedTuple):
    """Cycles of the closed forms over those taken, of attention and of all other kernels."""

    attention: float
    others: float

    def of(self, function: CostFunction) -> float:
        """Return the efficiency of a kernel."""
        return self.attention if function.is_attention else self.others


class Layout:
    """Cycles of ops on one grid, divided by the efficiency of their kind.

    Cycles depend only on the tokens of the fullest PE. Many micro-batch sizes have the same number
    of these, so results are kept.
    """

    def __init__(self, grid: Grid, efficiencies: Efficiencies, dtype: str) -> None:
        self.grid = grid
        self._efficiencies = efficiencies
        self._dtype = dtype
        self._known: dict[CostFunction, Cycles] = {}

    def cycles(self, function: CostFunction) -> Cycles:
        """Return the cycles of an op with this cost function."""
        seen = function.on(self.grid)
        cycles = self._known.get(seen)
        if cycles is None:
            efficiency = self._efficiencies.of(function)
            cycles = seen.cycles(self.grid, self._dtype) * (1 / efficiency)
            self._known[seen] = cycles
        return cycles


def layouts_on(wafer: WaferSpec, dtype: str) -> Sequence[Layout]:
    """Return the layouts to choose from; they keep the cycles of all ops costed so far."""
    efficiencies = Efficiencies(wafer.attention_efficiency, wafer.kernel_efficiency)
    return layouts_of(wafer.fabric, efficiencies, dtype)


@lru_cache(maxsize=16)
def layouts_of(fabric: FabricSpec, efficiencies: Efficiencies, dtype: str) -> Sequence[Layout]:
    """Return the layouts of a grid at any clock: they count cycles."""
    replicas_per_row = range(1, min(MOST_REPLICAS_PER_ROW, fabric.columns) + 1)
    grids = (Grid(fabric, fabric.columns // count) for count in replicas_per_row)
    return [Layout(grid, efficiencies, dtype) for grid in grids]


def _segment_cost(ops: Iterable[Cycles], wafer: WaferSpec, blocks: int) -> SegmentCost:
    total = sum(ops, Cycles())
    ps_per_cycle = PS_PER_S / wafer.clock_hz / wafer.software_speed
    return SegmentCost(
        compute_ps=blocks * round((total.total_cycles - total.setup) * ps_per_cycle),
        overhead_ps=blocks * (round(total.setup * ps_per_cycle) + wafer.segment_overhead_ps),
    )
