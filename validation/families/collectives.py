"""Replays of reduce, all-reduce and broadcast: programs whose sources are public, or HPDC'24 forms.

Rows of the SDK's simulator count from the start of the program, those of silicon from the first
wavelet.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal

from csnode.fabric.collectives.trees import auto_generated
from timing.hardware.fabric import FabricSpec
from timing.kernels import collectives
from validation.families.products import is_summa
from validation.families.replay import CannotReplay
from validation.published_programs import communication, hpdc
from validation.rows.kernel_rows import (
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
from validation.rows.row import Row
from validation.rows.row_words import letters_of

Form = Callable[[FabricSpec, int, float], float]


def _generated(fabric: FabricSpec, pes: int, wavelets: float) -> float:
    return auto_generated(pes, int(wavelets), fabric).cost(int(wavelets), fabric)


REDUCES: Mapping[str, Form] = {
    "star": collectives.star,
    "chain": collectives.chain,
    "tree": hpdc.tree,
    "twophase": hpdc.two_phase,
    "2phase": hpdc.two_phase,
    "autogen": _generated,
}
"""Forms of one line of PEs, as published, by letters of the algorithm's name."""


def is_collective(row: Row) -> bool:
    """Whether a row is about a collective by itself, not about the broadcasts of a product."""
    return of_workload("reduce", "broadcast", "bcast")(row) and not is_summa(row)


def predict_collective(row: Row) -> float:
    """In the row's unit; CannotReplay if it leaves too much unsaid."""
    fabric = fabric_of(row)
    unit = cycles_per_unit(row, sdk_clock_hz(fabric))  # first: the sizes of a ratio do not matter
    return (_program(row, fabric) or _modelled(row, fabric)) / unit


def _program(row: Row, fabric: FabricSpec) -> float | None:
    """Cycles of a published program; None if the row ran another."""
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
    """The HPDC'24 form that workload and algorithm name."""
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
        reduced = _along(_reduce_form(row, algorithm), fabric, sides, wavelets)
    return start + reduced + (broadcast if operation == "allreduce" else 0.0)


def _along(form: Form, fabric: FabricSpec, sides: tuple[int, int], wavelets: int) -> float:
    """One side after the other; a side of one PE has nothing to do."""
    return sum(form(fabric, side, wavelets) for side in sides if side > 1)


def _operation(row: Row) -> Literal["reduce", "allreduce", "broadcast"]:
    workload = letters_of(row.text("workload"))
    if "reducescatter" in workload:
        raise CannotReplay("no form of a reduce whose result is spread")
    if "allreduce" in workload:
        return "allreduce"
    return "reduce" if "reduce" in workload else "broadcast"


def _reduce_form(row: Row, algorithm: str) -> Form:
    for letters, form in REDUCES.items():
        if letters in algorithm:
            return form
    raise CannotReplay(f"no form for a {row.text('workload')} by {row.text('algorithm')!r}")
