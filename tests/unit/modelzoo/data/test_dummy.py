"""Random tokens that are the same each time and need no memory."""

import torch

from modelzoo.data.dummy import DummyDataProcessor
from modelzoo.data.source import BatchSource


def open_dummy(**keys: object) -> BatchSource:
    defaults = {
        "data_processor": "DummyDataProcessor",
        "batch_size": 16,
        "max_sequence_length": 64,
        "vocab_size": 10,
    }
    return DummyDataProcessor.model_validate(defaults | keys).source()


def test_tokens_are_spread_over_the_vocabulary() -> None:
    """About a tenth of 1024 tokens each, none outside."""
    counts = open_dummy().batch(0)["input_ids"].flatten().bincount()
    assert len(counts) == 10
    assert counts.min() > 60
    assert counts.max() < 150


def test_batches_are_a_function_of_seed_and_step() -> None:
    """The same seed and step give the same tokens; another of either gives others."""
    first = open_dummy().batch(5)["input_ids"]
    assert torch.equal(first, open_dummy().batch(5)["input_ids"])
    assert not torch.equal(first, open_dummy().batch(6)["input_ids"])
    assert not torch.equal(first, open_dummy(shuffle_seed=1).batch(5)["input_ids"])


def test_an_epoch_has_the_stated_number_of_examples() -> None:
    """After num_examples the samples come again."""
    source = open_dummy(num_examples=32)
    assert len(source) == 2
    assert torch.equal(source.batch(0)["labels"], source.batch(2)["labels"])
