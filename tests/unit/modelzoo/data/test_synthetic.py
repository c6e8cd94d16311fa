"""Random tokens and tensors have the stated shapes and distributions, and are reproducible."""

from typing import Any

import pytest
import torch

from modelzoo.data.synthetic import DummyDataProcessor, SyntheticDataProcessor
from waferstream.core.config import validate
from waferstream.core.errors import ConfigError
from waferstream.workload.data import Batch, BatchSource, build_source

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


def test_synthetic_inputs_have_their_shape_and_dtype() -> None:
    """A sample's shape after the batch dimension; integers if there is a bound."""
    shapes = {name: (tuple(t.shape), t.dtype) for name, t in batch().items()}
    assert shapes == {
        "tokens": ((100, 64), torch.int64),
        "image": ((100, 3, 4, 8), torch.float32),
        "label": ((100,), torch.int64),
    }


def test_synthetic_integers_are_uniform() -> None:
    """About 640 of each of ten values, none outside."""
    counts = batch()["tokens"].flatten().bincount()
    assert not counts[:3].any()
    assert len(counts) == 13
    assert counts[3:].min() > 540
    assert counts[3:].max() < 740


def test_synthetic_reals_are_standard_normal() -> None:
    """Mean 0, variance 1, and as heavy tails as a normal distribution (fourth moment 3)."""
    image = batch()["image"]
    assert image.mean().item() == pytest.approx(0, abs=0.05)
    assert image.var().item() == pytest.approx(1, abs=0.05)
    assert image.pow(4).mean().item() == pytest.approx(3, abs=0.3)


def test_synthetic_batches_depend_on_name_seed_and_step() -> None:
    """Nothing else matters."""
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
    "description", [{"shape": [0]}, {"shape": [2], "low": 5, "high": 5}, {"high": 5}]
)
def test_impossible_synthetic_input_is_refused(description: dict[str, Any]) -> None:
    """The error names the input."""
    with pytest.raises(ConfigError) as caught:
        batch(inputs={"x": description})
    assert "synthetic_inputs.x" in caught.value.what


def open_dummy(**keys: object) -> BatchSource:
    defaults = {
        "data_processor": "DummyDataProcessor",
        "batch_size": 16,
        "max_sequence_length": 64,
        "vocab_size": 10,
    }
    return DummyDataProcessor.model_validate(defaults | keys).source()


def test_dummy_tokens_are_spread_over_the_vocabulary() -> None:
    """About a tenth of 1024 tokens each, none outside."""
    counts = open_dummy().batch(0)["input_ids"].flatten().bincount()
    assert len(counts) == 10
    assert counts.min() > 60
    assert counts.max() < 150


def test_dummy_batches_depend_on_seed_and_step() -> None:
    """Nothing else matters."""
    first = open_dummy().batch(5)["input_ids"]
    assert torch.equal(first, open_dummy().batch(5)["input_ids"])
    assert not torch.equal(first, open_dummy().batch(6)["input_ids"])
    assert not torch.equal(first, open_dummy(shuffle_seed=1).batch(5)["input_ids"])


def test_dummy_epoch_has_num_examples() -> None:
    """Then the samples repeat."""
    source = open_dummy(num_examples=32)
    assert len(source) == 2
    assert torch.equal(source.batch(0)["labels"], source.batch(2)["labels"])


def test_iterable_twin_gives_the_same_batches() -> None:
    """With a length of its own, as the vendor's."""
    keys = {"batch_size": 4, "vocab_size": 10}
    twin = build_source(keys | {"data_processor": "DummyIterableDataProcessor"}, "train_input")
    first = next(iter(twin))["input_ids"]
    assert first.shape == (4, 128)
    assert torch.equal(
        first, open_dummy(batch_size=4, max_sequence_length=128).batch(0)["input_ids"]
    )
