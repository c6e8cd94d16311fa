"""Cells without which a row cannot be replayed: what they lack is the reason in the report."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TypeVar

from validation.families.replay import CannotReplay
from validation.rows.row import Row
from validation.rows.units import SECONDS, measure

Known = TypeVar("Known")

_DEVICES = frozenset({"GPU", "gpu", "CSX", "system", "device"})


def cell(row: Row, column: str) -> str:
    """The text of a cell; CannotReplay if it is empty."""
    if text := row.text(column):
        return text
    raise CannotReplay(f"the row gives no {column}")


def count(row: Row, column: str) -> int:
    """A number of things; CannotReplay if the cell is empty."""
    number = row.integer(column)
    if number is None:
        raise CannotReplay(f"the row gives no {column}")
    return number


def choice(row: Row, column: str, known: Mapping[str, Known]) -> Known:
    """What a cell stands for; CannotReplay if it is none of the known ones."""
    text = row.text(column)
    if text not in known:
        raise CannotReplay(f"no model of {column} {text!r}")
    return known[text]


def in_unit(row: Row, *units: str) -> str:
    """The row's unit; CannotReplay if the form gives none of it."""
    if row.unit not in units:
        raise CannotReplay(f"the form gives {' or '.join(units)}, not {row.unit}")
    return row.unit


def prompt_and_output(row: Row) -> tuple[int, int]:
    """Tokens in and out of a request, ``2048/128`` in ``seq_len``; CannotReplay if it differs."""
    found = re.fullmatch(r"(\d+)\s*/\s*(\d+)", row.text("seq_len"))
    if found is None:
        raise CannotReplay("seq_len does not say how many tokens go in and how many come out")
    return int(found[1]), int(found[2])


def in_token_unit(row: Row, tokens_per_s: float) -> float:
    """A rate of one request's tokens, or the time of a token, in the row's unit.

    CannotReplay if the unit is of neither.
    """
    quantity, *per = measure(row.unit).split("/")
    if quantity == "tokens" and per in (["s"], ["s", "user"], ["s", "request"]):
        return tokens_per_s
    if quantity in SECONDS and per == ["token"]:
        return 1 / tokens_per_s / SECONDS[quantity]
    raise CannotReplay(f"tokens per second are predicted, not {row.unit}")


def in_training_unit(
    row: Row, samples_per_s: float, batch_size: int, seq_len: int, devices: int
) -> float:
    """Samples, tokens or steps per second, of all devices or of each, or the time of a step.

    CannotReplay if the row's unit is none of them.
    """
    quantity, *per = measure(row.unit).split("/")
    rates = dict.fromkeys(("samples", "sequences", "images"), samples_per_s)
    rates["tokens"] = samples_per_s * seq_len
    rates["steps"] = rates["iterations"] = samples_per_s / batch_size
    if quantity in rates and per[:1] == ["s"] and set(per[1:]) <= _DEVICES:
        return rates[quantity] / (devices if per[1:] else 1)
    if quantity in SECONDS and per in (["step"], ["iteration"]):
        return batch_size / samples_per_s / SECONDS[quantity]
    raise CannotReplay(f"training is not predicted in {row.unit}")


def check_one_request(row: Row) -> None:
    """CannotReplay unless a row serves one request at a time, in 16 bit."""
    if (row.number("global_batch") or 1) != 1:
        raise CannotReplay("only one request at a time is modelled")
    if row.text("dtype") and "16" not in row.text("dtype"):
        raise CannotReplay("only 16-bit weights are modelled")
