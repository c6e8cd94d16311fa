"""Data processors by the name of their class, and the construction of one from params.yaml.

A module of this package registers its processors with ``register_processor``; ``modelzoo.data``
imports every module, so that a new processor is one new file.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from modelzoo import user_classes
from modelzoo.data.source import DataProcessor
from waferstream.core.config import validate
from waferstream.core.errors import ConfigError, did_you_mean

Processor = TypeVar("Processor", bound=DataProcessor)

DATA_PROCESSORS: dict[str, type[DataProcessor]] = {}


def register_processor(kind: type[Processor]) -> type[Processor]:
    """Register a data processor under the name of its class."""
    DATA_PROCESSORS[kind.__name__] = kind
    return kind


def data_processor(config: Mapping[str, Any], where: str) -> DataProcessor:
    """Return the data processor of a dataloader section of params.yaml, without opening files.

    Args:
        config: The section.
        where: Key path of the section, for errors.

    Raises:
        ConfigError: The processor is missing or unknown, or a key is wrong.
    """
    name = config.get("data_processor")
    if not name:
        raise ConfigError(
            "key 'data_processor' is missing",
            code="data-processor-missing",
            where=where,
            rule=f"one of {', '.join(DATA_PROCESSORS)}",
        )
    return validate(processor_class(str(name), where), config, where)


def processor_class(name: str, where: str) -> type[DataProcessor]:
    """Return the registered data processor of a name, found at ``where``; or ConfigError."""
    if name not in DATA_PROCESSORS:
        raise ConfigError(
            "data_processor must be that of a registered class",
            code="unknown-data-processor",
            where=where,
            value=name,
            rule=f"one of {', '.join(DATA_PROCESSORS)}",
            remedy=did_you_mean(name, DATA_PROCESSORS),
        )
    return DATA_PROCESSORS[name]


def check_section(config: Mapping[str, Any], where: str) -> None:
    """Check a dataloader section without opening files; raise ConfigError."""
    if user_classes.CLASS in config:
        user_classes.checked_class(config, where)
    else:
        data_processor(config, where)


def build_source(config: Mapping[str, Any], where: str) -> Any:
    """Open the dataset of a dataloader section; an input worker calls this in its own process.

    Returns:
        A ``BatchSource`` of a data processor, or what a class of the user's makes.

    Raises:
        ConfigError: The section is wrong.
        DataError: The dataset is missing or wrong.
    """
    if user_classes.CLASS in config:
        return user_classes.make(config, where)
    return data_processor(config, where).source()
