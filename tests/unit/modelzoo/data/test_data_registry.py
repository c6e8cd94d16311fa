"""A dataloader section finds its data processor by name, in any process."""

import pickle
from functools import partial

import pytest
import torch

from modelzoo.data.registry import DATA_PROCESSORS, build_source, data_processor
from wsc.core.errors import ConfigError

DUMMY = {"data_processor": "DummyDataProcessor", "batch_size": 2, "max_sequence_length": 8}


def test_every_processor_is_known_by_its_class_name() -> None:
    """What a dataloader section calls a processor is the name of its class."""
    assert all(name == kind.__name__ for name, kind in DATA_PROCESSORS.items())


def test_a_source_is_built_in_another_process_from_plain_data() -> None:
    """The recipe survives pickling and opens the same dataset."""
    recipe = pickle.loads(pickle.dumps(partial(build_source, DUMMY, "train_input")))
    here, there = build_source(DUMMY, "train_input"), recipe()
    assert torch.equal(here.batch(3)["input_ids"], there.batch(3)["input_ids"])


@pytest.mark.parametrize(
    ("change", "what", "remedy"),
    [
        ({"data_processor": "DumyDataProcessor"}, "unknown data processor", "DummyDataProcessor"),
        ({"data_processor": None}, "'data_processor' is missing", None),
        ({"bach_size": 2}, "unknown key 'bach_size'", "batch_size"),
        ({"batch_size": 0}, "value of 'batch_size' is not allowed", None),
    ],
)
def test_mistakes_are_named(change: dict[str, object], what: str, remedy: str | None) -> None:
    """With the place of the section and, where one comes near, the right word."""
    with pytest.raises(ConfigError, match=what) as caught:
        data_processor(DUMMY | change, "fit.train_dataloader")
    assert caught.value.where == "fit.train_dataloader"
    if remedy:
        assert caught.value.remedy == f"did you mean {remedy!r}?"
