"""Replays of set-up times: programming the device, sending initial weights, saving checkpoints.

Rows name a model, not its size (see row_words), nor its optimizer: checkpoints are taken to hold
the two moments of AdamW beside the weights.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from timing.hardware import MachineSpec
from timing.start_up import checkpoint_ps, initial_weights_ps
from validation.families.replay import CannotReplay, Family, Fit
from validation.fit.setup import (
    ADAMW_STATE_BYTES,
    fit_checkpoint,
    fit_initial_weights,
    fit_programming,
)
from validation.rows.row import Row
from validation.rows.row_words import major_release, num_parameters
from validation.rows.units import SECONDS
from wsc.core.units import seconds


def _programming_ps(row: Row) -> int:
    return _machine(row).system.programming_ps


def _initial_weights_ps(row: Row) -> int:
    spec = _machine(row).start_up
    return initial_weights_ps(spec, num_parameters(row), release=major_release(row))


def _checkpoint_ps(row: Row) -> int:
    return checkpoint_ps(_machine(row).start_up, num_parameters(row), ADAMW_STATE_BYTES)


def _other_ps(row: Row) -> int:
    raise CannotReplay(f"no calibration row tells of {row.text('workload')!r}")


def _machine(row: Row) -> MachineSpec:
    name = row.text("system")[:4]
    if name not in {"CS-2", "CS-3"}:
        raise CannotReplay(f"no numbers for a {row.text('system')}")
    return MachineSpec.model_validate({"system": name})


def _family(name: str, words: str, time_ps: Callable[[Row], int]) -> Family:
    """Rows whose workload matches ``words``, a pattern in lower case."""

    def knows(row: Row) -> bool:
        is_setup = row.kind == "training" and row.text("phase") == "setup"
        return is_setup and re.search(words, row.text("workload").lower()) is not None

    def predict(row: Row) -> float:
        if row.unit not in SECONDS:
            raise CannotReplay(f"set-up times are in s or minutes, not in {row.unit}")
        return seconds(time_ps(row)) / SECONDS[row.unit]

    return Family(name, knows, predict)


FAMILIES: tuple[Family, ...] = (
    _family(
        "set-up programming",
        "(device|wafer) programming|programming the (device|wafer)",
        _programming_ps,
    ),
    _family("set-up initial weights", "initial weights", _initial_weights_ps),
    _family("set-up checkpoint", r"\b(sav|writ)\w* (\w+ )?checkpoint", _checkpoint_ps),
    _family("set-up", "", _other_ps),
)
FITS: tuple[Fit, ...] = (
    Fit("set-up programming", fit_programming),
    Fit("set-up initial weights", fit_initial_weights),
    Fit("set-up checkpoint", fit_checkpoint),
)
