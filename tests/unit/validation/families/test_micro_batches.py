"""Micro-batches are predicted from the wafer's memory and the batch."""

from __future__ import annotations

import pytest

from tests.support.timing.reference_rows import predict, tiny_training_row
from validation.families.micro_batches import FAMILIES
from validation.rows.row import CannotPredict

STATED = {"phase": "micro-batch", "unit": "samples"}


def test_whole_batch_is_one_micro_batch_where_it_fits() -> None:
    """A tiny model has space for far more samples, and a size of another column has no effect."""
    row = tiny_training_row(**STATED, micro_batch_per_csx="16")
    assert predict(row, FAMILIES) == 64
    assert predict(tiny_training_row(**STATED, num_csx="2"), FAMILIES) == 32


def test_batch_is_cut_evenly_where_it_does_not_fit() -> None:
    """Without a batch, the largest micro-batch counts."""
    largest = predict(tiny_training_row(**STATED, global_batch=""), FAMILIES)
    batch = str(round(1.5 * largest))
    cut = predict(tiny_training_row(**STATED, global_batch=batch), FAMILIES)
    assert cut == pytest.approx(0.75 * largest, abs=1)


def test_row_without_shape_gives_the_reason() -> None:
    """Nothing is guessed."""
    with pytest.raises(CannotPredict) as reason:
        predict(tiny_training_row(**STATED, layers=""), FAMILIES)
    assert reason.value.code == "shape-not-stated"
