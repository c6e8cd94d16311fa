"""Predict weight-streaming training and evaluation throughput.

The row's model is captured and planned on the wafer in the largest even micro-batches that fit,
unless their size is known; the simulator executes its schedule. MemoryX and SwarmX keep their
published numbers; samples come from the loader of the model's public configuration.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from memoryx.optim.cost import NO_UPDATE, UpdateCost
from validation.families.prediction import Family
from validation.families.workloads import (
    loading_of,
    micro_batch_of,
    program_of,
    sequence_length,
)
from validation.published_programs.releases import release_of, software_speed
from validation.rows.row import CannotPredict, Row
from validation.rows.units import in_training_unit
from waferstream.core.program.micro_batches import FILL_WAFER, rounds_of
from waferstream.core.program.program import ProgramKind
from waferstream.core.units import seconds
from waferstream.machine.hardware import MachineSpec, WaferSpec
from waferstream.machine.sram import largest_with_recompute
from waferstream.simulator.simulator import Simulator

ADAMW = UpdateCost(state_bytes=8, flops=15)
"""Optimizer of every row: two fp32 moments; no row states its optimizer."""


@dataclass(frozen=True)
class Run:
    """A row as a run of the emulated cluster."""

    simulator: Simulator
    batch_size: int
    micro_batch_size: int
    num_csx: int

    @property
    def num_rounds(self) -> int:
        """Rounds of a step: passes of the weights over the wafer."""
        return rounds_of(self.batch_size, self.num_csx, self.micro_batch_size)

    @property
    def step_s(self) -> float:
        """Seconds of a step; the last micro-batch of a system takes as long as a full one."""
        padded = self.num_rounds * self.num_csx * self.micro_batch_size
        prediction = self.simulator.predict(padded, self.micro_batch_size, self.num_csx)
        return seconds(prediction.timing.duration_ps)

    @property
    def samples_per_s(self) -> float:
        """Throughput of all systems together."""
        return self.batch_size / self.step_s


def machine_of(row: Row) -> MachineSpec:
    """Return the CS-2 or CS-3 of a row; CannotPredict for any other system."""
    name = row.text("system")[:4]
    if name not in {"CS-2", "CS-3"}:
        raise CannotPredict(f"no numbers for a {row.text('system')}", code="system-unknown")
    return MachineSpec.model_validate({"system": name})


def wafer_of(row: Row) -> WaferSpec:
    """Return the system of a row at the speed of its release; CannotPredict if it is unknown."""
    wafer = machine_of(row).system
    speed = software_speed(release_of(row.text("software")))
    return wafer.model_copy(update={"software_speed": wafer.software_speed * speed})


def run_of(row: Row, kind: ProgramKind, wafer: WaferSpec | None = None) -> Run:
    """Return the run of a row, on another wafer if one is given.

    Raises CannotPredict if the row does not state the whole run.
    """
    batch_size = row.integer("global_batch")
    if batch_size is None:
        raise CannotPredict("the batch size is not stated", code="batch-not-stated")
    if row.number("sparsity_pct"):
        raise CannotPredict("times are predicted for dense weights alone", code="sparse-weights")
    if row.text("dtype") and "16" not in row.text("dtype"):
        raise CannotPredict(
            f"activations of 16 bits are modelled, not {row.text('dtype')}",
            code="activations-not-16-bit",
        )
    program = program_of(row, kind)
    machine = MachineSpec(system=wafer or wafer_of(row))
    num_csx = row.integer("num_csx") or 1
    stated = micro_batch_of(row) if kind.updates else None
    largest = largest_with_recompute(program.smallest, machine)
    size = row.integer("micro_batch_per_csx") or stated or largest
    micro_batch_size = FILL_WAFER.size(batch_size, num_csx, min(size, largest))
    update = ADAMW if kind.updates else NO_UPDATE
    simulator = Simulator(program, machine, update=update, loading=loading_of(row))
    return Run(simulator, batch_size, micro_batch_size, num_csx)


def rate_of(row: Row, run: Run) -> float:
    """Return the throughput of a run in the unit of a row; CannotPredict if it has no such unit."""
    length = sequence_length(row)
    if length is None and "token" in row.unit:
        raise CannotPredict("samples are images: they have no tokens", code="images-in-tokens")
    return in_training_unit(row, run.samples_per_s, run.batch_size, length or 0, run.num_csx)


def _family(name: str, knows: Callable[[Row], bool], kind: ProgramKind) -> Family:
    return Family(name, knows, lambda row: rate_of(row, run_of(row, kind)))


def _trains_on(system: str) -> Callable[[Row], bool]:
    def knows(row: Row) -> bool:
        trains = row.kind == "training" and row.text("phase") == "train"
        return trains and row.text("system").startswith(system)

    return knows


def _in_phase(phase: str) -> Callable[[Row], bool]:
    return lambda row: row.kind == "training" and row.text("phase") == phase


def _refuse_tokens(_: Row) -> float:
    raise CannotPredict("the number of tokens is not stated", code="tokens-not-stated")


def _evaluates(row: Row) -> bool:
    phase = row.kind == "training" and row.text("phase")
    is_named = re.search(r"\beval", row.text("workload").lower()) is not None
    return phase == "eval" or (phase == "inference" and is_named)


FAMILIES: tuple[Family, ...] = (
    _family("training CS-2", _trains_on("CS-2"), ProgramKind.TRAIN),
    _family("training CS-3", _trains_on("CS-3"), ProgramKind.TRAIN),
    _family("evaluation", _evaluates, ProgramKind.EVAL),
    _family("compiler estimate", _in_phase("compile-estimate"), ProgramKind.TRAIN),
    Family("training time", _in_phase("training-time"), _refuse_tokens),
)
