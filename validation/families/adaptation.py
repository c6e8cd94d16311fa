"""Predict fine-tuning of low-rank matrices beside frozen weights, of which some may be zero."""

from __future__ import annotations

from validation.families.prediction import Family
from validation.rows.row import CannotPredict, Row


def _refuse(_: Row) -> float:
    raise CannotPredict("the rank of the matrices is not stated", code="rank-not-stated")


def _knows(row: Row) -> bool:
    return row.kind == "training" and row.text("phase") == "lora"


FAMILIES: tuple[Family, ...] = (Family("adaptation", _knows, _refuse),)
