"""``train_dataloader`` and ``val_dataloader``: a registered data processor and its keys."""

from __future__ import annotations

from typing import Annotated

from pydantic import BeforeValidator, ConfigDict, PositiveInt
from pydantic_core import PydanticCustomError

from waferstream.config.section import Section, one_or_many


def _refuse_micro_batch(value: object) -> None:
    if value is not None:
        raise PydanticCustomError(
            "legacy_key",
            "this key belongs to the legacy layout",
            {
                "remedy": "under trainer.init.callbacks write ScopedTrainFlags:"
                f" {{csx.performance.micro_batch_size: {value}}}"
            },
        )


class DataLoaderConfig(Section):
    """Which data, with keys that the processor validates; ``dump`` gives them all."""

    model_config = ConfigDict(extra="allow")

    data_processor: str
    batch_size: PositiveInt
    """Samples of a step over all systems together."""
    micro_batch_size: Annotated[None, BeforeValidator(_refuse_micro_batch)] = None


DataLoaders = Annotated[tuple[DataLoaderConfig, ...], one_or_many]
"""One mapping or a list of them."""
