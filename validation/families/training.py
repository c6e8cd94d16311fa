"""Replays of weight-streaming training and evaluation throughput."""

from __future__ import annotations

import re
from collections.abc import Callable

from validation.families.replay import CannotReplay, Family, Fit
from validation.families.training_runs import run_of
from validation.families.workloads import Mode, sequence_length
from validation.fit.training import fit_releases, fit_wafer
from validation.rows.cells import in_training_unit
from validation.rows.row import Row


def _family(name: str, knows: Callable[[Row], bool], mode: Mode) -> Family:
    def predict(row: Row) -> float:
        run, length = run_of(row, mode), sequence_length(row)
        if length is None and "token" in row.unit:
            raise CannotReplay("samples are images: they have no tokens")
        return in_training_unit(row, run.samples_per_s, run.batch_size, length or 0, run.num_csx)

    return Family(name, knows, predict)


def _trains_on(system: str) -> Callable[[Row], bool]:
    def knows(row: Row) -> bool:
        trains = row.kind == "training" and row.text("phase") == "train"
        return trains and row.text("system").startswith(system)

    return knows


def _evaluates(row: Row) -> bool:
    phase = row.kind == "training" and row.text("phase")
    says_so = re.search(r"\beval", row.text("workload").lower()) is not None
    return phase == "eval" or (phase == "inference" and says_so)


FAMILIES: tuple[Family, ...] = (
    _family("training CS-2", _trains_on("CS-2"), "train"),
    _family("training CS-3", _trains_on("CS-3"), "train"),
    _family("evaluation", _evaluates, "eval"),
)
FITS: tuple[Fit, ...] = (Fit("training CS-2", fit_wafer), Fit("training", fit_releases))
