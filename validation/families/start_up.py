"""Predict start-up times: programming the device, sending initial weights, saving checkpoints.

Rows name a model instead of its size, and no optimizer: checkpoints are assumed to hold the two
moments of AdamW beside the weights.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from validation.families.prediction import Family
from validation.families.training import machine_of
from validation.rows.row import CannotPredict, Row, letters_of
from validation.rows.units import SECONDS
from waferstream.core.units import seconds
from waferstream.machine.start_up import checkpoint_ps, initial_weights_ps

ADAMW_STATE_BYTES = 8
"""Bytes of optimizer state per parameter in a checkpoint."""

_PARAMETERS: Mapping[str, float] = {
    "gptj": 6.05e9,
    "gptj6b": 6.05e9,
    "gptneox20b": 20.55e9,
    "llama27b": 6.74e9,
    "llama213b": 13.02e9,
    "llama270b": 68.98e9,
    "llama38b": 8.03e9,
    "llama318b": 8.03e9,
    "llama370b": 70.55e9,
    "mistral7b": 7.24e9,
    "falcon7b": 7.22e9,
    "esm235m": 33.5e6,
    "esm2650m": 651e6,
    "esm23b": 2.84e9,
    "bertbase": 110e6,
    "bertlarge": 336e6,
    "gpt2small": 124e6,
    "gpt2medium": 355e6,
    "gpt2large": 774e6,
    "gpt2xl": 1.558e9,
    "ditxl": 675e6,
}
"""Parameters of published checkpoints, by the letters of their names."""

_SIZE = re.compile(r"(?<![\w.])(\d+(?:\.\d+)?) ?([BM])\b")
_RELEASE = re.compile(r"\b(?:R|rel-|release )(\d+)\.\d+")


def num_parameters(row: Row) -> int:
    """Return the parameters of a row's model; CannotPredict if the row does not tell them.

    The column ``model_params_b`` precedes the published size, which precedes the size in the name.
    """
    stated = row.number("model_params_b")
    if stated is not None:
        return round(stated * 1e9)
    workload = row.text("workload")
    letters = letters_of(workload)
    if known := [name for name in _PARAMETERS if name in letters]:
        return round(_PARAMETERS[max(known, key=len)])
    if sizes := _SIZE.findall(workload.replace("-", " ")):
        number, unit = sizes[-1]
        return round(float(number) * {"B": 1e9, "M": 1e6}[unit])
    raise CannotPredict(f"no size of a model in {workload!r}", code="model-size-not-stated")


def major_release(row: Row) -> int:
    """Return the major release of the software; 2, the current one, where the row names none."""
    found = _RELEASE.search(f"{row.text('software')} {row.text('workload')}")
    return int(found[1]) if found else 2


def _programming_ps(row: Row) -> int:
    return machine_of(row).system.programming_ps


def _initial_weights_ps(row: Row) -> int:
    spec = machine_of(row).start_up
    return initial_weights_ps(spec, num_parameters(row), release=major_release(row))


def _checkpoint_ps(row: Row) -> int:
    return checkpoint_ps(machine_of(row).start_up, num_parameters(row), ADAMW_STATE_BYTES)


def _other_ps(row: Row) -> int:
    raise CannotPredict(
        f"no calibration row of {row.text('workload')!r}", code="no-calibration-row"
    )


def _family(name: str, words: str, time_ps: Callable[[Row], int]) -> Family:
    """Return the family of rows whose workload matches ``words``, a lower-case pattern."""

    def knows(row: Row) -> bool:
        is_start_up = row.kind == "training" and row.text("phase") == "setup"
        return is_start_up and re.search(words, row.text("workload").lower()) is not None

    def predict(row: Row) -> float:
        if row.unit not in SECONDS:
            raise CannotPredict(
                f"start-up times are in s or minutes, not in {row.unit}", code="unit-not-predicted"
            )
        return seconds(time_ps(row)) / SECONDS[row.unit]

    return Family(name, knows, predict)


FAMILIES: tuple[Family, ...] = (
    _family(
        "start-up programming",
        "(device|wafer) programming|programming the (device|wafer)",
        _programming_ps,
    ),
    _family("start-up initial weights", "initial weights", _initial_weights_ps),
    _family("start-up checkpoint", r"\b(sav|writ)\w* (\w+ )?checkpoint", _checkpoint_ps),
    _family("start-up", "", _other_ps),
)
