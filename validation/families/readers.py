"""Predict training that waits for its readers, as its source says ("input-bound").

The wafer is left out. The processes that read decide, so a row is predicted only if the vendor's
public configuration is of exactly that run: model and batch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from validation.families.prediction import Family
from validation.families.training import machine_of
from validation.rows.row import CannotPredict, Row, letters_of
from validation.rows.units import in_training_unit
from waferstream.core.program.program import Loading
from waferstream.core.units import seconds


@dataclass(frozen=True)
class Reading:
    """What the input workers of one system do for a step."""

    batch_size: int
    elements_per_sample: int
    loading: Loading


_READINGS: Mapping[str, Reading] = {
    "vitbase": Reading(
        2850,
        3 * 224 * 224 + 1,
        Loading("jpeg", num_workers=2, num_workers_per_csx=2),
    ),
}
"""Public configurations by the letters of their models: ViT-base on ImageNet (modelzoo R2.10)."""


def reading_of(row: Row) -> Reading:
    """Return what a row reads; CannotPredict unless a public configuration is of that run."""
    letters = letters_of(row.text("workload"))
    found = next((_READINGS[name] for name in _READINGS if name in letters), None)
    if found is None or found.batch_size != row.integer("global_batch"):
        raise CannotPredict(
            "the processes that read are not stated, and no public configuration is of that run",
            code="readers-not-stated",
        )
    return found


def _knows(row: Row) -> bool:
    trains = row.kind == "training" and row.text("phase") == "train"
    return trains and "input-bound" in row.text("workload")


def _predict(row: Row) -> float:
    reading, num_csx = reading_of(row), row.integer("num_csx") or 1
    samples = reading.batch_size // num_csx
    load_ps = machine_of(row).input.load_ps(
        reading.loading, samples, samples * reading.elements_per_sample
    )
    return in_training_unit(
        row, reading.batch_size / seconds(load_ps), reading.batch_size, 0, num_csx
    )


FAMILIES: tuple[Family, ...] = (Family("input-bound training", _knows, _predict),)
