"""Predict reduce, all-reduce and broadcast: published programs, or the HPDC'24 cost functions.

Rows of the SDK's simulator count cycles from the start of the program, rows of silicon from the
first wavelet.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal

from csnode.fabric.collectives.trees import auto_generated
from validation.families.products import is_summa
from validation.published_programs import communication, hpdc
from validation.rows.kernels import (
    cycles_per_unit,
    fabric_of,
    group_of,
    is_plane,
    line_of,
    of_workload,
    sdk_clock_hz,
    sides_of,
    wavelets_of,
)
from validation.rows.row import CannotPredict, Row, letters_of
from waferstream.machine.hardware.fabric import FabricSpec
from waferstream.machine.kernels import collectives

CostFunction = Callable[[FabricSpec, int, float], float]


def _generated(fabric: FabricSpec, pes: int, wavelets: float) -> float:
    return auto_generated(pes, int(wavelets), fabric).cost(int(wavelets), fabric)


REDUCES: Mapping[str, CostFunction] = {
    "star": collectives.star,
    "chain": collectives.chain,
    "tree": hpdc.tree,
    "twophase": hpdc.two_phase,
    "2phase": hpdc.two_phase,
    "autogen": _generated,
}
"""Published cost functions of a reduce along one line of PEs, by letters of the algorithm."""


def is_collective(row: Row) -> bool:
    """Return whether a row is about a collective alone, not about the broadcasts of a product."""
    return of_workload("reduce", "broadcast", "bcast")(row) and not is_summa(row)


def predict_collective(row: Row) -> float:
    """Predict a collective in the row's unit."""
    fabric = fabric_of(row)
    unit = cycles_per_unit(row, sdk_clock_hz(fabric))  # first: the sizes of a ratio do not matter
    return (_program(row, fabric) or _modelled(row, fabric)) / unit


def _program(row: Row, fabric: FabricSpec) -> float | None:
    """Return the cycles of a published program; None if the row ran another one."""
    algorithm, group = letters_of(row.text("algorithm")), group_of(row)
    if "lowdepth" in algorithm:
        return communication.low_depth_program(
            fabric, line_of(row, fabric), wavelets_of(row, fabric)
        )
    if group is None or not any(words in algorithm for words in ("twophase", "2phase")):
        return None
    return communication.two_phase_program(
        fabric,
        line_of(row, fabric),
        wavelets_of(row, fabric),
        group,
        descriptors_loaded="2colorsdynamic" not in algorithm,
    )


def _modelled(row: Row, fabric: FabricSpec) -> float:
    """Return the cycles of the HPDC'24 cost function that workload and algorithm name."""
    start = communication.start_cycles(fabric) if row.evidence == "simulator" else 0
    sides = sides_of(row, fabric) if is_plane(row) else (line_of(row, fabric), 1)
    wavelets = wavelets_of(row, fabric)
    broadcast = collectives.broadcast_2d(fabric, *sides, wavelets)
    operation = _operation(row)
    if operation == "broadcast":
        return start + broadcast
    algorithm = letters_of(f"{row.text('algorithm')} {row.text('workload')}")
    if "ring" in algorithm and operation == "allreduce":
        return start + _along(collectives.ring_all_reduce, fabric, sides, wavelets)
    if "snake" in algorithm:
        reduced = collectives.snake_reduce(fabric, *sides, wavelets)
    else:
        reduced = _along(_reduce_cost(row, algorithm), fabric, sides, wavelets)
    return start + reduced + (broadcast if operation == "allreduce" else 0.0)


def _along(cost: CostFunction, fabric: FabricSpec, sides: tuple[int, int], wavelets: int) -> float:
    """Sum the cost over both sides; a side of one PE costs nothing."""
    return sum(cost(fabric, side, wavelets) for side in sides if side > 1)


def _operation(row: Row) -> Literal["reduce", "allreduce", "broadcast"]:
    workload = letters_of(row.text("workload"))
    if "reducescatter" in workload:
        raise CannotPredict("no cost function of a reduce-scatter", code="no-cost-function")
    if "allreduce" in workload:
        return "allreduce"
    return "reduce" if "reduce" in workload else "broadcast"


def _reduce_cost(row: Row, algorithm: str) -> CostFunction:
    for letters, cost in REDUCES.items():
        if letters in algorithm:
            return cost
    raise CannotPredict(
        f"no cost function of a {row.text('workload')} by {row.text('algorithm')!r}",
        code="no-cost-function",
    )
