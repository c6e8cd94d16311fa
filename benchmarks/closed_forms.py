"""How far are the closed forms from the simulated fabric, in cycles?

    python -m benchmarks.closed_forms --json benchmarks/results/closed_forms.json

Each kernel runs on the simulated fabric over shapes, grids, formats and machines, and the form of
``wsc.timing.kernels`` is compared with the cycles that it took. Weights that are left out of sparse
products lie anywhere (seeded); the form is told the share of those that are left.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from statistics import mean, median

import numpy as np
import torch

from csnode.fabric import Dtype, Fabric, kernels, run
from csnode.fabric import collectives as programs
from csnode.fabric.program import Program
from wsc.telemetry.host import describe_host, git_commit
from wsc.timing.hardware.fabric import WSE2, WSE3, WSE3_SIMULATOR, FabricSpec
from wsc.timing.kernels import Grid, collectives, gemm, gemv, resident, tensors

_ROOT = Path(__file__).parents[1]
MACHINES = {"WSE-2": WSE2, "WSE-3": WSE3, "WSE-3 simulator": WSE3_SIMULATOR}
DTYPES = {Dtype.FP32: "float32", Dtype.FP16: "float16", Dtype.BF16: "bfloat16"}
SPARSE = 0.25
"""Share of weights that are not zero in the sparse products."""


@dataclass(frozen=True)
class Case:
    """One kernel, ``rows`` x ``columns`` PEs of a machine, and the tile of a PE."""

    machine: str
    dtype: Dtype
    rows: int
    columns: int
    tile: tuple[int, ...]

    @property
    def spec(self) -> FabricSpec:
        """The machine."""
        return MACHINES[self.machine]

    @property
    def fabric(self) -> Fabric:
        """Its PEs to simulate."""
        return Fabric(self.rows, self.columns, self.spec)

    @property
    def grid(self) -> Grid:
        """The same PEs for the closed forms."""
        size = {"rows": self.rows, "columns": self.columns}
        return Grid.whole(self.spec.model_copy(update=size))

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns that tiles of the first two lengths make up."""
        return self.rows * self.tile[0], self.columns * self.tile[1]

    @property
    def matrix(self) -> np.ndarray:
        """Random values of this shape."""
        return np.random.default_rng(0).normal(size=self.shape)


Comparison = tuple[float, float]
"""Cycles of the closed form, and of the fabric."""


def _chain(case: Case) -> Comparison:
    return _collective(case, collectives.chain, _reduce_by(programs.chain))


def _star(case: Case) -> Comparison:
    return _collective(case, collectives.star, _reduce_by(programs.star))


def _tree(case: Case) -> Comparison:
    return _collective(case, collectives.tree, _reduce_by(programs.binary))


def _two_phase(case: Case) -> Comparison:
    return _collective(case, collectives.two_phase, _reduce_by(programs.two_phase))


def _broadcast(case: Case) -> Comparison:
    return _collective(case, collectives.broadcast, programs.broadcast)


def _ring(case: Case) -> Comparison:
    return _collective(case, collectives.ring_all_reduce, programs.ring_all_reduce)


def _all_reduce(case: Case) -> Comparison:
    """A chain and a broadcast, which starts with a set-up of its own."""

    def form(spec: FabricSpec, pes: int, words: float) -> float:
        way_back = collectives.broadcast(spec, pes, words) + spec.vector_setup_cycles
        return collectives.chain(spec, pes, words) + way_back

    def build(fabric: Fabric, length: int, dtype: Dtype) -> Program:
        return programs.all_reduce(fabric, programs.chain(fabric.columns), length, dtype)

    return _collective(case, form, build)


def _broadcast_2d(case: Case) -> Comparison:
    square = Case(case.machine, case.dtype, case.columns, case.columns, case.tile)

    def form(spec: FabricSpec, pes: int, words: float) -> float:
        return collectives.broadcast_2d(spec, pes, pes, words)

    return _collective(square, form, programs.broadcast_2d)


def _reduce_by(tree: Callable[[int], programs.Tree]) -> Callable[..., Program]:
    def build(fabric: Fabric, length: int, dtype: Dtype) -> Program:
        return programs.reduce(fabric, tree(fabric.columns), length, dtype)

    return build


def _collective(
    case: Case,
    form: Callable[[FabricSpec, int, float], float],
    build: Callable[[Fabric, int, Dtype], Program],
) -> Comparison:
    """Forms of collectives count from the first wavelet."""
    length = case.tile[0] * case.tile[1]
    taken = run(build(case.fabric, length, case.dtype), {"x": 1.0}).cycles
    words = length / case.dtype.per_word
    return form(case.spec, case.columns, words), taken - case.spec.vector_setup_cycles


def _dense(case: Case) -> Comparison:
    return _streamed(case, 1.0)


def _sparse(case: Case) -> Comparison:
    return _streamed(case, SPARSE)


def _streamed(case: Case, density: float) -> Comparison:
    x, outputs, dtype = case.matrix, case.tile[2], case.dtype
    weights = np.random.default_rng(1).random((x.shape[1], outputs)) < density
    edge = Fabric(case.rows + 1, case.columns, case.spec)
    taken = kernels.weight_streaming(edge, x, weights.astype(float), dtype).cycles
    share = float(weights.mean())
    form = gemm.weight_streaming(case.grid, *case.shape, outputs, DTYPES[dtype], share)
    return form.total_cycles, taken


def _weight_gradient(case: Case) -> Comparison:
    x, outputs = case.matrix, case.columns * case.tile[2]
    taken = kernels.weight_gradient(case.fabric, x, np.ones((len(x), outputs)), case.dtype)
    form = resident.weight_gradient(case.grid, *case.shape, outputs, DTYPES[case.dtype])
    return form.total_cycles, taken.cycles


def _gemv(case: Case) -> Comparison:
    matrix = case.matrix
    taken = kernels.gemv(case.fabric, matrix, matrix[0], case.dtype).cycles
    return gemv.resident(case.grid, *case.shape, DTYPES[case.dtype]).total_cycles, taken


def _summa(case: Case) -> Comparison:
    left = case.matrix
    right = np.ones((left.shape[1], case.columns * case.tile[2]))
    taken = kernels.summa(case.fabric, left, right, case.dtype).cycles
    tile = (case.tile[0], case.tile[2])
    pes = (case.rows, case.columns)
    form = resident.summa(case.spec, pes, tile, left.shape[1], DTYPES[case.dtype])
    return form.total_cycles, taken


def _softmax(case: Case) -> Comparison:
    taken = kernels.softmax(case.fabric, case.matrix, case.dtype).cycles
    return tensors.softmax(case.grid, case.matrix.shape, DTYPES[case.dtype]).total_cycles, taken


def _norm(case: Case) -> Comparison:
    x = case.matrix
    taken = kernels.layer_norm(case.fabric, x, x[0], x[0], case.dtype).cycles
    return tensors.norm(case.grid, x.shape, DTYPES[case.dtype]).total_cycles, taken


def _attention(case: Case) -> Comparison:
    q = case.matrix
    keys = np.ones((case.columns * case.tile[2], q.shape[1]))
    taken = kernels.attention(case.fabric, q, keys, keys, case.dtype).cycles
    sizes = (len(q), len(keys), q.shape[1])
    return tensors.attention(case.grid, 1, *sizes, DTYPES[case.dtype]).total_cycles, taken


def _embedding(case: Case) -> Comparison:
    table = case.matrix
    tokens = np.zeros(len(table), dtype=int)
    taken = kernels.embedding(case.fabric, table, tokens, case.dtype).cycles
    return tensors.gather(case.grid, table.shape, DTYPES[case.dtype]).total_cycles, taken


def _loss(case: Case) -> Comparison:
    logits, dtype = case.matrix, DTYPES[case.dtype]
    classes = np.zeros(len(logits), dtype=int)
    taken = kernels.cross_entropy(case.fabric, logits, classes, case.dtype).cycles
    softmax = tensors.softmax(case.grid, logits.shape, dtype)
    return (softmax + tensors.loss(case.grid, logits.shape, dtype)).total_cycles, taken


_LINES = ((1, 4), (1, 7), (1, 16), (1, 32), (1, 128))
_SHORT_LINES = ((1, 4), (1, 16))
_RECTANGLES = ((2, 2), (4, 4), (2, 8), (6, 3))
_GRIDS = ((4, 4), (2, 8))
_SQUARES = ((2, 2), (4, 4))
_VECTORS = ((1, 8), (1, 64))
_TILES = ((4, 16), (12, 8))
Sweep = tuple[Callable[[Case], Comparison], Sequence[tuple[int, int]], Sequence[tuple[int, ...]]]

SWEEPS: dict[str, Sweep] = {
    "chain": (_chain, _LINES, _VECTORS),
    "star": (_star, _SHORT_LINES, _VECTORS),
    "tree": (_tree, _LINES, _VECTORS),
    "two-phase": (_two_phase, _LINES, _VECTORS),
    "broadcast": (_broadcast, _LINES, _VECTORS),
    "all-reduce": (_all_reduce, _LINES, _VECTORS),
    "ring all-reduce": (_ring, _SHORT_LINES, ((1, 32), (1, 128))),
    "2D broadcast": (_broadcast_2d, ((1, 4), (1, 7), (1, 32)), _VECTORS),
    "GEMM, dense": (_dense, _GRIDS, ((8, 4, 24), (12, 8, 32))),
    "GEMM, sparse": (_sparse, _GRIDS, ((8, 16, 48), (12, 32, 48))),
    "weight gradient": (_weight_gradient, ((4, 2), (2, 8)), ((4, 8, 2), (2, 16, 2), (1, 16, 64))),
    "GEMV": (_gemv, _GRIDS, ((16, 16), (32, 8))),
    "SUMMA": (_summa, _RECTANGLES, ((16, 6, 16), (4, 6, 24), (24, 6, 4), (2, 12, 2))),
    "softmax": (_softmax, _GRIDS, _TILES),
    "layer norm": (_norm, _GRIDS, _TILES),
    "attention": (_attention, _SQUARES, ((16, 8, 16),)),
    "embedding": (_embedding, _GRIDS, _TILES),
    "loss": (_loss, _GRIDS, _TILES),
}
"""Kernels, their grids (rows, columns), and what each PE holds."""


@dataclass(frozen=True)
class Error:
    """One point of a sweep; ``error`` is that of the form, relative to the fabric."""

    kernel: str
    machine: str
    dtype: str
    rows: int
    columns: int
    tile: tuple[int, ...]
    form_cycles: float
    fabric_cycles: float
    error: float


def sweep(kernel: str, machines: Sequence[str], dtypes: Sequence[Dtype]) -> Iterator[Error]:
    """All points of a kernel; in fp32 no weight carries an index, so that zeros are sent."""
    compare, grids, tiles = SWEEPS[kernel]
    for machine, dtype, (rows, columns), tile in product(machines, dtypes, grids, tiles):
        if kernel == "GEMM, sparse" and dtype is Dtype.FP32:
            continue
        form, taken = compare(Case(machine, dtype, rows, columns, tile))
        error = form / taken - 1
        yield Error(kernel, machine, DTYPES[dtype], rows, columns, tile, form, taken, error)


def main(arguments: Sequence[str] | None = None) -> int:
    """Sweep, print a table, write JSON; returns the exit status."""
    options = _parser().parse_args(arguments)
    results: list[Error] = []
    print(f"{'kernel':<20}{'points':>7}{'mean':>8}{'median':>8}{'max':>8}")
    for kernel in SWEEPS:
        points = list(sweep(kernel, list(MACHINES), list(DTYPES)))
        results += points
        errors = [abs(point.error) for point in points]
        figures = "".join(f"{x:>8.1%}" for x in (mean(errors), median(errors), max(errors)))
        print(f"{kernel:<20}{len(errors):>7}{figures}", flush=True)
    if options.json:
        measurement = {
            "question": "closed forms against the simulated fabric, relative error of cycles",
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            "git_commit": git_commit(_ROOT),
            "host": asdict(describe_host(torch.__version__)),
            "results": [asdict(point) for point in results],
        }
        options.json.write_text(json.dumps(measurement, indent=1) + "\n")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.closed_forms",
        description=(__doc__ or "").partition("\n")[0],
    )
    parser.add_argument("--json", type=Path, help="where results go")
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
