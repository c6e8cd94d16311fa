"""Ablations of training on wafers: waits, times per segment, releases, zeros."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from validation.ablations.ablation import Ablation
from validation.families import adaptation
from validation.families.training import Run, machine_of, rate_of, run_of, wafer_of
from validation.rows.row import Row
from waferstream.core.program.program import UNKNOWN_LOADING, ProgramKind
from waferstream.machine.hardware import WaferSpec

Change = Callable[[Run], Run]


def _trained(change: Change) -> Callable[[Row], float]:
    """Return the prediction of a row's run after a change."""
    return lambda row: rate_of(row, change(run_of(row, ProgramKind.TRAIN)))


def _on(wafer: Callable[[Row], WaferSpec]) -> Callable[[Row], float]:
    """Return the prediction of a row's run on another wafer, which may choose another size."""
    return lambda row: rate_of(row, run_of(row, ProgramKind.TRAIN, wafer(row)))


def _with_wafer(**changed: Any) -> Callable[[Row], float]:
    return _on(lambda row: wafer_of(row).model_copy(update=changed))


def _simulated_with(**changed: Any) -> Change:
    return lambda run: replace(run, simulator=replace(run.simulator, **changed))


def _one_efficiency(row: Row) -> WaferSpec:
    wafer = wafer_of(row)
    return wafer.model_copy(update={"attention_efficiency": wafer.kernel_efficiency})


def _dense(row: Row) -> float:
    return adaptation.predict(replace(row, fields={**row.fields, "sparsity_pct": ""}))


ABLATIONS: tuple[Ablation, ...] = (
    Ablation(
        "waiting for input",
        "samples are there at once",
        "training",
        _trained(_simulated_with(loading=UNKNOWN_LOADING)),
    ),
    Ablation(
        "time per segment",
        "a segment starts at once",
        "training",
        _with_wafer(segment_overhead_ps=0),
    ),
    Ablation(
        "efficiency of attention",
        "attention is as efficient as other kernels",
        "training",
        _on(_one_efficiency),
    ),
    Ablation(
        "releases of the software",
        "every release is as fast as the one fitted to",
        "training",
        _on(lambda row: machine_of(row).system),
    ),
    Ablation("zeros trigger no work", "all weights are dense", "adaptation", _dense),
)
