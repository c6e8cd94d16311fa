"""Predictions of what zeros among weights save: operations and parameters."""

from __future__ import annotations

import pytest

from tests.support.programs.small_programs import program
from tests.support.timing.reference_rows import predict, tiny_training_row
from validation.families.registry import FAMILIES
from validation.families.sparse import elements, sparse_densities
from validation.rows.row import CannotPredict

LAYERS, ATTENTION, HEAD = 2 * 12 * 64**2, 2 * 2 * 32 * 64, 64 * 128
"""Multiplications of the tiny GPT for each token, forward."""


def test_operations_are_those_of_the_non_zeros() -> None:
    """Products of the layers count by their density; attention and output head stay dense."""
    row = tiny_training_row(sparsity_pct="75", unit="x fewer FLOPs")
    ratio = (LAYERS + ATTENTION + HEAD) / (LAYERS / 4 + ATTENTION + HEAD)
    assert predict(row, FAMILIES) == pytest.approx(ratio)
    percent = tiny_training_row(sparsity_pct="75", unit="% fewer FLOPs")
    assert predict(percent, FAMILIES) == pytest.approx(100 * (1 - 1 / ratio))


def test_parameters_are_those_that_are_not_zero() -> None:
    small = program()
    assert elements(small) == 16 + 4 + 8 + 3
    assert elements(small, {"first.weight": 0.25}) == 4 + 4 + 8 + 3
    assert sparse_densities(small, 0.5) == {"first.weight": 0.5, "last.weight": 0.5}


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"unit": "x fewer FLOPs"}, "sparsity-not-stated"),
        ({"unit": "speedup"}, "sizes-not-stated"),
        ({"unit": "% top-1"}, "accuracy-not-predicted"),
    ],
)
def test_what_is_not_stated_or_not_predicted_gives_the_reason(
    change: dict[str, str], code: str
) -> None:
    with pytest.raises(CannotPredict) as reason:
        predict(tiny_training_row(**change), FAMILIES)
    assert reason.value.code == code
