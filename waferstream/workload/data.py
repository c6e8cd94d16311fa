"""Data processors by the name of their class, and the construction of one from params.yaml.

A data processor describes a dataset; ``source()`` opens it. Every source has random access: batch
``step`` is a pure function of the configuration and the step, so that a resumed run, another number
of systems, or another number of input workers sees the same batches. Packages offer data processors
as entry points (``waferstream.core.plugins``), as the zoo does.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Annotated, Any, Protocol

import torch
from pydantic import NonNegativeInt, PositiveInt

from waferstream.core.config import Config, before, validate
from waferstream.core.errors import ConfigError, DataError
from waferstream.core.plugins import Plugins
from waferstream.core.program.program import UNKNOWN_LOADING, LoaderKind, Loading
from waferstream.workload import user_classes
from waferstream.workload.packing import Packing

Batch = dict[str, torch.Tensor]
"""Contiguous tensors by name, the batch in the first dimension.

Tokens for a model that predicts the next one: ``input_ids``, ``attention_mask`` (the loss mask) and
``labels`` (already shifted), all int64 of shape (batch, max_sequence_length).
"""


class BatchSource(Protocol):
    """Global batches by step."""

    batch_size: int
    """Samples of one step on all systems."""

    loading: Loading
    """Loader on the emulated machine; no value depends on it."""

    def __len__(self) -> int:
        """Return the whole global batches in an epoch."""

    def batch(self, step: int) -> Batch:
        """Return the global batch of a step, counted from 0; epochs follow each other."""

    def __iter__(self) -> Iterator[Batch]:
        """Yield batches 0, 1, 2, ... without end."""


class DataProcessor(Config):
    """Keys that every data processor has."""

    data_processor: str
    """Name of an entry point, which is that of the class."""

    batch_size: PositiveInt
    """Global batch size: samples of one step on all systems, before micro-batching."""

    shuffle_seed: Annotated[int, before(lambda seed: seed or 0, int | None)] = 0

    loader: LoaderKind = "other"
    """Loader of machine.input in cluster.yaml whose time loading takes on the emulated machine.

    Synthetic data can represent files in this way.
    """

    num_workers: NonNegativeInt = 0
    """Loader processes of an input worker of the emulated machine; 0: the worker loads."""

    @property
    def loading(self) -> Loading:
        """Loader on the emulated machine."""
        loading = Loading(self.loader, self.num_workers)
        try:
            return replace(loading, num_files=self.count_files())
        except DataError:  # a simulation needs no data
            return loading

    def count_files(self) -> int:
        """Return the files that hold the samples; DataError if they are missing or broken."""
        return UNKNOWN_LOADING.num_files

    def packing(self) -> Packing | None:
        """Return how full the sequences are, None if the samples do not say."""
        return None

    @abstractmethod
    def source(self) -> BatchSource:
        """Open the dataset. Raises DataError if it is missing, broken or too short."""


DATA_PROCESSORS = Plugins[type[DataProcessor]]("data_processors")


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
            rule=DATA_PROCESSORS.rule,
        )
    return validate(processor_class(str(name), where), config, where)


def processor_class(name: str, where: str) -> type[DataProcessor]:
    """Return the data processor of a name, found at ``where``; or ConfigError."""
    if name not in DATA_PROCESSORS:
        raise ConfigError(
            "data_processor must be the name of a data processor",
            code="unknown-data-processor",
            where=where,
            value=name,
            rule=DATA_PROCESSORS.rule,
            remedy=DATA_PROCESSORS.remedy(name),
        )
    return DATA_PROCESSORS[name]


def check_section(config: Mapping[str, Any], where: str) -> None:
    """Check a dataloader section without opening files; raise ConfigError."""
    if user_classes.CLASS in config:
        user_classes.checked_class(config, where)
    else:
        data_processor(config, where)


def packing_of(config: Mapping[str, Any], where: str) -> Packing | None:
    """Return how full the sequences of a dataloader section are, None if nothing says it."""
    if user_classes.CLASS in config:
        return None
    return data_processor(config, where).packing()


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
