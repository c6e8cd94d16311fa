"""Predict fine-tuning of low-rank matrices beside frozen weights, of which a share may be zero.

Published runs adapt all linear layers of a model by one configuration. Their masks cover the frozen
weights that the default filter of ``cstorch.sparse`` selects.
"""

from __future__ import annotations

from validation.families.prediction import Family
from validation.families.sparse import sparse_densities
from validation.families.training import ADAMW, Run, rate_of, wafer_of
from validation.families.workloads import loading_of, program_of
from validation.rows.row import Row
from waferstream.config.sections.lora import LoraConfig
from waferstream.core.program.micro_batches import FILL_WAFER
from waferstream.core.program.program import ProgramKind
from waferstream.machine.densities import StepSparsity
from waferstream.machine.hardware import MachineSpec
from waferstream.machine.sram import largest_with_recompute
from waferstream.simulator.simulator import Simulator

ADAPTERS = LoraConfig(r=16, alpha=32, dropout=0.05, target_modules=("Linear",))
"""Of every row (public repository Okwy-UE/project3-sparse-ft, configs/cerebras/generated)."""


def _run(row: Row) -> Run:
    program = program_of(row, ProgramKind.TRAIN, (ADAPTERS,))
    machine = MachineSpec(system=wafer_of(row))
    batch_size, num_csx = row.count("global_batch"), row.integer("num_csx") or 1
    density = 1 - (row.number("sparsity_pct") or 0) / 100
    sparsity = StepSparsity(sparse_densities(program.smallest, density) if density < 1 else {})
    simulator = Simulator(
        program, machine, update=ADAMW, loading=loading_of(row), sparsity=sparsity
    )
    largest = largest_with_recompute(program.smallest, machine)
    return Run(simulator, batch_size, FILL_WAFER.size(batch_size, num_csx, largest), num_csx)


def predict(row: Row) -> float:
    """Predict a throughput in the unit of the row."""
    return rate_of(row, _run(row))


def _knows(row: Row) -> bool:
    return row.kind == "training" and row.text("phase") == "lora"


FAMILIES: tuple[Family, ...] = (Family("adaptation", _knows, predict),)
