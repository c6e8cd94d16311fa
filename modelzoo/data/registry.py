"""Data processors by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from modelzoo.data.dummy import DummyDataProcessor
from modelzoo.data.hdf5 import GptHDF5MapDataProcessor
from modelzoo.data.source import BatchSource, DataProcessor
from modelzoo.data.synthetic import SyntheticDataProcessor
from modelzoo.data.text import TextDataProcessor
from wsc.core.config import validate
from wsc.core.errors import ConfigError, did_you_mean

DATA_PROCESSORS: dict[str, type[DataProcessor]] = {
    kind.__name__: kind
    for kind in (
        GptHDF5MapDataProcessor,
        TextDataProcessor,
        DummyDataProcessor,
        SyntheticDataProcessor,
    )
}


def data_processor(config: Mapping[str, Any], where: str) -> DataProcessor:
    """The data processor that a dataloader section of params.yaml describes.

    ``where`` says where the section stands. Raises ConfigError; touches no file.
    """
    name = config.get("data_processor")
    kind = DATA_PROCESSORS.get(str(name))
    if kind is None:
        raise ConfigError(
            "unknown data processor" if name else "key 'data_processor' is missing",
            where=where,
            value=name,
            rule=f"one of {', '.join(DATA_PROCESSORS)}",
            remedy=did_you_mean(str(name), DATA_PROCESSORS),
        )
    return validate(kind, config, where)


def build_source(config: Mapping[str, Any], where: str) -> BatchSource:
    """Open the dataset of a dataloader section; an input worker calls this in its own process.

    Raises ConfigError if the section is wrong, DataError if the dataset is.
    """
    return data_processor(config, where).source()
