"""Synthetic inputs have the stated shapes and distributions, and are the same each time."""

from typing import Any

import pytest
import torch

from modelzoo.data.source import Batch
from modelzoo.data.synthetic import SyntheticDataProcessor
from wsc.core.config import validate
from wsc.core.errors import ConfigError

INPUTS: dict[str, Any] = {
    "tokens": {"shape": [64], "low": 3, "high": 13},
    "image": {"shape": [3, 4, 8]},
    "label": {"shape": [], "high": 2},
}


def batch(step: int = 0, seed: int = 0, inputs: dict[str, Any] = INPUTS) -> Batch:
    section = {
        "data_processor": "SyntheticDataProcessor",
        "batch_size": 100,
        "shuffle_seed": seed,
        "synthetic_inputs": inputs,
    }
    return validate(SyntheticDataProcessor, section, "test").source().batch(step)


def test_every_input_has_its_shape_and_type() -> None:
    """A sample's shape behind the batch dimension; integers where there is a bound."""
    shapes = {name: (tuple(t.shape), t.dtype) for name, t in batch().items()}
    assert shapes == {
        "tokens": ((100, 64), torch.int64),
        "image": ((100, 3, 4, 8), torch.float32),
        "label": ((100,), torch.int64),
    }


def test_integers_are_uniform_in_their_range() -> None:
    """About 640 of each of ten values, none outside."""
    counts = batch()["tokens"].flatten().bincount()
    assert not counts[:3].any()
    assert len(counts) == 13
    assert counts[3:].min() > 540
    assert counts[3:].max() < 740


def test_real_numbers_are_standard_normal() -> None:
    """Mean 0, variance 1, and as heavy tails as a normal distribution (fourth moment 3)."""
    image = batch()["image"]
    assert image.mean().item() == pytest.approx(0, abs=0.05)
    assert image.var().item() == pytest.approx(1, abs=0.05)
    assert image.pow(4).mean().item() == pytest.approx(3, abs=0.3)


def test_batches_are_a_function_of_name_seed_and_step() -> None:
    """Equal for equal ones; otherwise different."""
    twice = {name: {"shape": [64], "high": 99} for name in ("one", "other")}
    first = batch(5, inputs=twice)
    assert torch.equal(first["one"], batch(5, inputs=twice)["one"])
    for other in (
        first["other"],
        batch(6, inputs=twice)["one"],
        batch(5, seed=1, inputs=twice)["one"],
    ):
        assert not torch.equal(first["one"], other)


@pytest.mark.parametrize(
    ("description", "key"),
    [
        ({"shape": [0]}, r"shape\[0\]"),
        ({"shape": [2], "low": 5, "high": 5}, "x"),
        ({"high": 5}, "shape"),
    ],
)
def test_impossible_inputs_are_refused(description: dict[str, Any], key: str) -> None:
    """The error names the input."""
    with pytest.raises(ConfigError, match=rf"synthetic_inputs\.x(\.{key})?'"):
        batch(inputs={"x": description})
