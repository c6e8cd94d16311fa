"""Data loaders take keys from the model's section."""

from __future__ import annotations

from typing import Any

from tests.support.errors import raises
from waferstream.config.params import Params
from waferstream.core.config import validate
from waferstream.core.errors import ConfigError

TOKENS = {"data_processor": "BertTokenClassifierDataProcessor", "batch_size": 8}
MODEL = {"name": "bert/token_classifier", "label_vocab_file": "a.json", "num_classes": 3}


def keys(loader: dict[str, Any], model: dict[str, Any] = MODEL) -> list[dict[str, Any]]:
    """Return the sections of the data loaders, without the keys of all."""
    trainer = {
        "init": {"model": model},
        "fit": {"train_dataloader": loader, "val_dataloader": [loader]},
        "validate": {"val_dataloader": loader},
        "validate_all": {"val_dataloaders": loader},
    }
    loaders = validate(Params, {"trainer": trainer}, "test").trainer.dataloaders()
    every = ("data_processor", "batch_size")
    return [{k: v for k, v in each.dump().items() if k not in every} for _, each in loaders]


def test_every_loader_has_the_keys_of_the_model() -> None:
    assert keys(TOKENS) == [{"label_vocab_file": "a.json"}] * 4
    own = MODEL | {"include_padding_in_loss": True, "vocab_file": "c.txt"}
    assert keys(TOKENS, own)[0] == {"label_vocab_file": "a.json", "include_padding_in_loss": True}


def test_values_of_a_loader_stay() -> None:
    assert keys(TOKENS | {"label_vocab_file": "b.json"})[0] == {"label_vocab_file": "b.json"}
    assert keys({**TOKENS, "data_processor": "MNLIDataProcessor"})[0] == {}


def test_data_processor_that_is_no_name_is_refused() -> None:
    """Whatever YAML may hold in its place."""
    for value in ({"a": 1}, ["BertSumCSVDataProcessor"], 7):
        with raises(ConfigError, code="wrong-type"):
            keys({**TOKENS, "data_processor": value})
