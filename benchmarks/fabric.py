"""Measure the fabric simulator on a whole wafer, in PE-cycles per second.

    python -m benchmarks.fabric --json benchmarks/results/fabric.json

Each case runs once on all PEs of a WSE-2, on one core, and its result is checked. The time to build
the program of a collective is not counted; building the streamed product takes under a second. A
PE-cycle is one cycle of one PE, busy or idle: the simulator visits busy PEs only, so hops per
second are reported as well.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from time import perf_counter

import numpy as np

from csnode.fabric import kernels
from csnode.fabric.collectives.programs import broadcast_2d, reduce_2d
from csnode.fabric.collectives.trees import chain, two_phase
from csnode.fabric.defects import Defects, random_defects
from csnode.fabric.program import Program
from csnode.fabric.region import Fabric
from csnode.fabric.simulator.execution import Outcome, run
from waferstream.host.files import write_json
from waferstream.machine.hardware.fabric import WSE2
from waferstream.reports.benchmark import new_file, new_result, positive

_SPARES = 10
"""Spare rows and columns of a wafer with defects."""


@dataclass(frozen=True)
class Case:
    """A program whose result is checked in the first PE (a broadcast: in all PEs)."""

    name: str
    build: Callable[[Fabric, int], Program]
    is_reduce: bool
    pe_yield: float = 1.0


CASES = (
    Case("broadcast", broadcast_2d, False),
    Case("broadcast, 0.05 % of PEs dead", broadcast_2d, False, 0.9995),
    Case("2D reduce, chains", lambda f, n: reduce_2d(f, chain(f.columns), chain(f.rows), n), True),
    Case(
        "2D reduce, two-phase",
        lambda f, n: reduce_2d(f, two_phase(f.columns), two_phase(f.rows), n),
        True,
    ),
)


STREAMED = "weight streaming"
_OUTPUTS = 4
"""Outputs of the streamed product: more than accumulators, so that the ring sum overlaps."""


@dataclass(frozen=True)
class Result:
    """Measurement of one case."""

    name: str
    rows: int
    columns: int
    words: int
    cycles: int
    hops: int
    seconds: float
    pe_cycles_per_s: float
    hops_per_s: float


def measure(case: Case, rows: int, columns: int, words: int) -> Result:
    """Run a case once; AssertionError if its result is wrong."""
    defects = random_defects(WSE2, 1, case.pe_yield) if case.pe_yield < 1 else Defects()
    spare = _SPARES if defects else 0
    fabric = Fabric(max(1, rows - spare), max(1, columns - spare), WSE2, defects)
    program = case.build(fabric, words)
    values = np.arange(words) % 5 - 2
    data = np.zeros((fabric.rows, fabric.columns, words), dtype=np.float32)
    data[:, :] = values if case.is_reduce else 0
    data[0, 0] = values
    start = perf_counter()
    outcome = run(program, {"x": data})
    seconds = perf_counter() - start
    _check(case, outcome, values)
    return _result(case.name, words, outcome, seconds)


def measure_streaming(rows: int, columns: int, words: int) -> Result:
    """Run a product with streamed weights, ``words`` fp32 tokens and an input feature per PE."""
    tokens = max(1, rows - 1) * words
    x = np.arange(tokens * columns).reshape(tokens, columns) % 5 - 2
    weights = np.arange(columns * _OUTPUTS).reshape(columns, _OUTPUTS) % 3 - 1
    start = perf_counter()
    product = kernels.weight_streaming(Fabric(max(2, rows), columns, WSE2), x, weights)
    seconds = perf_counter() - start
    assert (product.values == x @ weights).all(), STREAMED
    return _result(STREAMED, words, product.outcome, seconds)


def _result(name: str, words: int, outcome: Outcome, seconds: float) -> Result:
    rows, columns = outcome.busy_cycles.shape
    return Result(
        name=name,
        rows=rows,
        columns=columns,
        words=words,
        cycles=outcome.cycles,
        hops=outcome.hops,
        seconds=seconds,
        pe_cycles_per_s=rows * columns * outcome.cycles / seconds,
        hops_per_s=outcome.hops / seconds,
    )


def _check(case: Case, outcome: Outcome, values: np.ndarray) -> None:
    found = outcome.read("x")
    if case.is_reduce:
        assert (found[0, 0] == values * outcome.busy_cycles.size).all(), case.name
    else:
        assert (found == values).all(), case.name


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print a table, write JSON; return the exit status."""
    options = _parser().parse_args(arguments)
    results: list[Result] = []
    kept = {
        **new_result("PE-cycles per second of the fabric simulator on a whole wafer, one core"),
        "results": results,
    }
    print(f"{'case':<32}{'cycles':>8}{'seconds':>9}{'M PE-cycles/s':>15}{'M hops/s':>10}")
    size = options.rows, options.columns, options.words
    measures = [partial(measure, case, *size) for case in CASES]
    for measured in (*measures, partial(measure_streaming, *size)):
        result = measured()
        results.append(result)
        rates = f"{result.pe_cycles_per_s / 1e6:>15.1f}{result.hops_per_s / 1e6:>10.2f}"
        print(f"{result.name:<32}{result.cycles:>8}{result.seconds:>9.2f}{rates}", flush=True)
    if options.json:
        write_json(options.json, kept)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.fabric",
        description=(__doc__ or "").partition("\n")[0],
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("--json", type=new_file, help="file for the results")
    parser.add_argument("--rows", type=positive, default=WSE2.rows, help="PEs from north to south")
    parser.add_argument(
        "--columns", type=positive, default=WSE2.columns, help="PEs from west to east"
    )
    parser.add_argument("--words", type=positive, default=16, help="32-bit words per PE")
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
