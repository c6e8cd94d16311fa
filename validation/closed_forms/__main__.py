"""Measure how far closed forms of kernels are from the simulated fabric, in cycles.

    python -m validation.closed_forms --json benchmarks/results/closed_forms.json

Each kernel runs on the simulated fabric over shapes, grids, dtypes and machines; ``kernel_cases``
pairs the cycles it takes with those of its closed form in ``waferstream.machine.kernels``.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from statistics import mean, median
from typing import NamedTuple

from csnode.fabric.dtypes import Dtype
from validation.closed_forms import kernel_cases
from validation.closed_forms.kernel_cases import MACHINES, Case, Comparison
from waferstream.host.files import write_json
from waferstream.reports.benchmark import new_file, new_result

_LINES = ((1, 4), (1, 7), (1, 16), (1, 32), (1, 128))
_SHORT_LINES = ((1, 4), (1, 16))
_SIDES = ((1, 4), (1, 7), (1, 32))
_RECTANGLES = ((2, 2), (4, 4), (2, 8), (6, 3))
_GRIDS = ((4, 4), (2, 8))
_RINGS = (*_GRIDS, (2, 1))
_ROWS = (*_GRIDS, (1, 32))
_SQUARES = ((2, 2), (4, 4))
_VECTORS = ((1, 8), (1, 64))
_TILES = ((4, 16), (12, 8))
_ROW_TILES = (*_TILES, (2, 4), (1, 4))
_GRADIENTS = ((4, 8, 2), (2, 16, 2), (1, 16, 64))
_INDEXED = ("GEMM, sparse", "weight gradient, masked")
_PRODUCTS = ((16, 6, 16), (4, 6, 24), (24, 6, 4), (2, 12, 2))


class Sweep(NamedTuple):
    """Comparison of a kernel, its grids (rows, columns), and the tiles of a PE."""

    compare: Comparison
    grids: Sequence[tuple[int, int]]
    tiles: Sequence[tuple[int, ...]]


SWEEPS = {
    "chain": Sweep(kernel_cases.chain, _LINES, _VECTORS),
    "star": Sweep(kernel_cases.star, _SHORT_LINES, _VECTORS),
    "tree": Sweep(kernel_cases.tree, _LINES, _VECTORS),
    "two-phase": Sweep(kernel_cases.two_phase, _LINES, _VECTORS),
    "broadcast": Sweep(kernel_cases.broadcast, _LINES, _VECTORS),
    "all-reduce": Sweep(kernel_cases.all_reduce, _LINES, _VECTORS),
    "ring all-reduce": Sweep(kernel_cases.ring_all_reduce, _SHORT_LINES, ((1, 32), (1, 128))),
    "2D broadcast": Sweep(kernel_cases.broadcast_2d, _SIDES, _VECTORS),
    "GEMM, dense": Sweep(kernel_cases.dense_gemm, _RINGS, ((8, 4, 24), (12, 8, 32))),
    "GEMM, sparse": Sweep(kernel_cases.sparse_gemm, _RINGS, ((8, 16, 48), (12, 32, 48))),
    "weight gradient": Sweep(kernel_cases.weight_gradient, ((4, 2), (2, 8)), _GRADIENTS),
    "weight gradient, masked": Sweep(
        kernel_cases.masked_weight_gradient, ((4, 4), (2, 8)), ((16, 12, 8), (32, 8, 6))
    ),
    "GEMV": Sweep(kernel_cases.matvec, _GRIDS, ((16, 16), (32, 8))),
    "SUMMA": Sweep(kernel_cases.summa, _RECTANGLES, _PRODUCTS),
    "softmax": Sweep(kernel_cases.softmax, _ROWS, _ROW_TILES),
    "layer norm": Sweep(kernel_cases.layer_norm, _ROWS, _ROW_TILES),
    "attention": Sweep(kernel_cases.attention, _SQUARES, ((16, 8, 16),)),
    "embedding": Sweep(kernel_cases.embedding, _GRIDS, _TILES),
    "loss": Sweep(kernel_cases.loss, _ROWS, _ROW_TILES),
}


@dataclass(frozen=True)
class Point:
    """One point of a sweep; ``error`` is that of the closed form, relative to the fabric."""

    kernel: str
    machine: str
    dtype: str
    rows: int
    columns: int
    tile: tuple[int, ...]
    form_cycles: float
    fabric_cycles: float
    error: float


def sweep(kernel: str, machines: Sequence[str], dtypes: Sequence[Dtype]) -> Iterator[Point]:
    """Yield all points of a kernel.

    In fp32 no weight carries an index, so zeros are sent and sparse products are left out.
    """
    compare, grids, tiles = SWEEPS[kernel]
    for machine, dtype, (rows, columns), tile in product(machines, dtypes, grids, tiles):
        if kernel in _INDEXED and dtype is Dtype.FP32:
            continue
        closed_form, simulated = compare(Case(machine, dtype, rows, columns, tile))
        error = closed_form / simulated - 1
        case = (kernel, machine, dtype.torch_name, rows, columns, tile)
        yield Point(*case, closed_form, simulated, error)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the sweeps, print a table, write JSON; return the exit status."""
    options = _parser().parse_args(arguments)
    points: list[Point] = []
    result = {
        **new_result("closed forms against the simulated fabric, relative error of cycles"),
        "results": points,
    }
    print(f"{'kernel':<20}{'points':>7}{'mean':>8}{'median':>8}{'max':>8}")
    for kernel in SWEEPS:
        of_kernel = list(sweep(kernel, list(MACHINES), list(Dtype)))
        points += of_kernel
        errors = [abs(point.error) for point in of_kernel]
        figures = "".join(f"{x:>8.1%}" for x in (mean(errors), median(errors), max(errors)))
        print(f"{kernel:<20}{len(errors):>7}{figures}", flush=True)
    if options.json:
        write_json(options.json, result)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m validation.closed_forms",
        description=(__doc__ or "").partition("\n")[0],
    )
    parser.add_argument("--json", type=new_file, help="where results go")
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
