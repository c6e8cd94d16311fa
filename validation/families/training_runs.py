"""A row of published training or evaluation throughput as a run of the emulated cluster.

The row's model is captured, placed on the wafer in the largest even micro-batches that fit unless
others are known, and the cluster's clock walks its schedule. MemoryX and SwarmX keep their
published numbers; samples come from the loader that the model's public configuration names.
"""

from __future__ import annotations

from dataclasses import dataclass

from memoryx.optim.cost import NO_UPDATE, UpdateCost
from simulator.simulator import Simulator
from timing.hardware import MachineSpec, WaferSpec
from timing.sram import largest_with_recompute
from validation.families.replay import CannotReplay
from validation.families.workloads import Mode, loading_of, micro_batch_of, program_of
from validation.published_programs.releases import release_of, software_speed
from validation.rows.row import Row
from wsc.compiler.scale import CAPTURED_SIZES, ScalableProgram
from wsc.core.micro_batches import FILL_WAFER, rounds_of
from wsc.core.units import seconds

ADAMW = UpdateCost(state_bytes=8, flops=15)
"""Of every row: two fp32 moments; none states its optimizer."""


@dataclass(frozen=True)
class Run:
    """What a row says was run."""

    simulator: Simulator
    batch_size: int
    micro_batch_size: int
    num_csx: int

    @property
    def num_rounds(self) -> int:
        """How often the weights stream in a step."""
        return rounds_of(self.batch_size, self.num_csx, self.micro_batch_size)

    @property
    def step_s(self) -> float:
        """Seconds of a step; the last micro-batch of a system takes as long as a full one."""
        padded = self.num_rounds * self.num_csx * self.micro_batch_size
        prediction = self.simulator.predict(padded, self.micro_batch_size, self.num_csx)
        return seconds(prediction.timing.duration_ps)

    @property
    def samples_per_s(self) -> float:
        return self.batch_size / self.step_s


def wafer_of(row: Row) -> WaferSpec:
    """The system of a row under its release of the software.

    CannotReplay for a system without numbers, ConfigError for a release without calibration rows.
    """
    name = row.text("system")[:4]
    if name not in {"CS-2", "CS-3"}:
        raise CannotReplay(f"no numbers for a {row.text('system')}")
    wafer = MachineSpec.model_validate({"system": name}).system
    release = release_of(row.text("software"))
    if release is None:
        return wafer
    return wafer.model_copy(update={"software_speed": software_speed(name, release)})


def run_of(row: Row, mode: Mode, wafer: WaferSpec | None = None) -> Run:
    """The run of a row, on another wafer if one is given. CannotReplay if it is not told whole."""
    batch_size = row.integer("global_batch")
    if batch_size is None:
        raise CannotReplay("the batch size is not stated")
    if row.number("sparsity_pct"):
        raise CannotReplay("sparse weights are not captured")
    if row.text("dtype") and "16" not in row.text("dtype"):
        raise CannotReplay(f"activations of 16 bits are modelled, not {row.text('dtype')}")
    program = program_of(row, mode)
    machine = MachineSpec(system=wafer or wafer_of(row))
    num_csx = row.integer("num_csx") or 1
    stated = micro_batch_of(row) if mode == "train" else None
    micro_batch_size = (
        row.integer("micro_batch_per_csx")
        or stated
        or FILL_WAFER.size(batch_size, num_csx, _largest(program, machine.system), simulated=True)
    )
    update = ADAMW if mode == "train" else NO_UPDATE
    simulator = Simulator(program, machine, update=update, loading=loading_of(row))
    return Run(simulator, batch_size, micro_batch_size, num_csx)


def _largest(program: ScalableProgram, wafer: WaferSpec) -> int:
    return largest_with_recompute(program.at(CAPTURED_SIZES[0], 1), wafer)
