"""Replays of weight-streaming training and evaluation throughput."""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.fidelity.fit_training import fit_releases, fit_wafer
from benchmarks.fidelity.replay import CannotReplay, Family, Fit
from benchmarks.fidelity.rows import Row
from benchmarks.fidelity.training_runs import run_of
from benchmarks.fidelity.workloads import Mode


def _family(name: str, knows: Callable[[Row], bool], mode: Mode) -> Family:
    def predict(row: Row) -> float:
        if row.unit != "samples/s":
            raise CannotReplay(f"throughput is in samples/s, not in {row.unit}")
        return run_of(row, mode).samples_per_s

    return Family(name, knows, predict)


def _trains_on(system: str) -> Callable[[Row], bool]:
    def knows(row: Row) -> bool:
        trains = row.kind == "training" and row.text("phase") == "train"
        return trains and row.text("system").startswith(system)

    return knows


def _evaluates(row: Row) -> bool:
    words = row.text("workload").lower().split()
    return row.kind == "training" and row.text("phase") == "inference" and "eval" in words


FAMILIES: tuple[Family, ...] = (
    _family("training CS-2", _trains_on("CS-2"), "train"),
    _family("training CS-3", _trains_on("CS-3"), "train"),
    _family("evaluation", _evaluates, "eval"),
)
FITS: tuple[Fit, ...] = (Fit("training CS-2", fit_wafer), Fit("training", fit_releases))
