"""Predict how many samples the vendor's software takes at a time, and what its compiler expects.

The largest micro-batch that fits the wafer decides, in the fewest rounds of the row's batch. Sizes
of public configurations, which other families read, are results here and have no effect.
"""

from __future__ import annotations

from validation.families.prediction import Family
from validation.families.training import wafer_of
from validation.families.workloads import program_of
from validation.rows.row import Row
from validation.rows.units import in_unit
from waferstream.core.program.micro_batches import FILL_WAFER
from waferstream.core.program.program import ProgramKind
from waferstream.machine.hardware import MachineSpec
from waferstream.machine.sram import largest_with_recompute


def _predict(row: Row) -> float:
    in_unit(row, "samples")
    machine = MachineSpec(system=wafer_of(row))
    largest = largest_with_recompute(program_of(row, ProgramKind.TRAIN).smallest, machine)
    batch_size = row.integer("global_batch")
    if batch_size is None:
        return largest
    return FILL_WAFER.size(batch_size, row.integer("num_csx") or 1, largest)


def _knows(row: Row) -> bool:
    return row.kind == "training" and row.text("phase") == "micro-batch"


FAMILIES: tuple[Family, ...] = (Family("micro-batch", _knows, _predict),)
