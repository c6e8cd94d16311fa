"""not_finite: the first value of a segment that is not finite."""

from __future__ import annotations

import math

import pytest
import torch

from csnode.micro_batch import MicroBatch
from csnode.results import not_finite
from tests.support.programs.small_programs import segment

FORWARD = segment(0, inputs=("x",), outputs=("tokens", "hidden"), results=((0, "loss"),))
BACKWARD = segment(1, "backward", inputs=("hidden",), outputs=("above",), gradients=("weight",))


def micro_batch(hidden: float = 1.0, gradient: float = 1.0, loss: float = 1.0) -> MicroBatch:
    """Return a micro-batch after both segments, with one value of each kind as given."""
    return MicroBatch(
        index=0,
        values={
            "tokens": torch.tensor([1, 2]),
            "hidden": torch.tensor([0.0, hidden]),
            "above": torch.tensor([0.0, hidden]),
        },
        gradients={"weight": torch.tensor([gradient, 0.0])},
        results={0: loss},
    )


def test_finite_values_are_not_found() -> None:
    assert not_finite(FORWARD, micro_batch()) is None
    assert not_finite(BACKWARD, micro_batch()) is None


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_each_kind_of_value_is_examined(value: float) -> None:
    assert not_finite(FORWARD, micro_batch(hidden=value)) == "hidden"
    assert not_finite(FORWARD, micro_batch(loss=value)) == "loss"
    assert not_finite(BACKWARD, micro_batch(hidden=value)) == "above"
    assert not_finite(BACKWARD, micro_batch(gradient=value)) == "weight"


def test_masks_of_minus_infinity_are_allowed_forward_only() -> None:
    assert not_finite(FORWARD, micro_batch(hidden=-math.inf)) is None
    assert not_finite(BACKWARD, micro_batch(hidden=-math.inf)) == "above"
    assert not_finite(BACKWARD, micro_batch(gradient=-math.inf)) == "weight"


@pytest.mark.parametrize("field", ["is_finite", "has_labels"])
def test_micro_batch_that_is_known_or_empty_is_not_examined(field: str) -> None:
    batch = micro_batch(hidden=math.nan)
    setattr(batch, field, False)
    assert not_finite(FORWARD, batch) is None
