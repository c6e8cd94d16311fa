"""A dataloader section selects a data processor by name, in any process."""

import pickle
from functools import partial

import pytest
import torch

from modelzoo.data.synthetic import DummyDataProcessor
from tests.support.errors import raises
from waferstream.core.errors import ConfigError
from waferstream.workload.data import DATA_PROCESSORS, build_source, data_processor

DUMMY = {"data_processor": "DummyDataProcessor", "batch_size": 2, "max_sequence_length": 8}


def test_processors_have_the_name_of_their_class() -> None:
    """The name in a dataloader section is that of the class."""
    assert DATA_PROCESSORS["DummyDataProcessor"] is DummyDataProcessor
    assert all(name == kind.__name__ for name, kind in DATA_PROCESSORS.items())


def test_build_source_recipe_survives_pickling() -> None:
    """An input worker opens the same dataset in its own process."""
    recipe = pickle.loads(pickle.dumps(partial(build_source, DUMMY, "train_input")))
    here, there = build_source(DUMMY, "train_input"), recipe()
    assert torch.equal(here.batch(3)["input_ids"], there.batch(3)["input_ids"])


@pytest.mark.parametrize(
    ("change", "code", "remedy"),
    [
        (
            {"data_processor": "DumyDataProcessor"},
            "unknown-data-processor",
            "did you mean 'DummyDataProcessor'?",
        ),
        ({"data_processor": None}, "data-processor-missing", None),
    ],
)
def test_wrong_data_processor_is_refused(
    change: dict[str, object], code: str, remedy: str | None
) -> None:
    """With the place of the section and the nearest known name."""
    with raises(ConfigError, code) as caught:
        data_processor(DUMMY | change, "fit.train_dataloader")
    assert caught.value.where == "fit.train_dataloader"
    assert caught.value.remedy == remedy


@pytest.mark.parametrize(
    ("change", "key"), [({"bach_size": 2}, "bach_size"), ({"batch_size": 0}, "batch_size")]
)
def test_wrong_dataloader_key_is_refused(change: dict[str, object], key: str) -> None:
    """An unknown key, and a value that breaks a rule."""
    with pytest.raises(ConfigError) as caught:
        data_processor(DUMMY | change, "fit.train_dataloader")
    assert f"'{key}'" in caught.value.what
