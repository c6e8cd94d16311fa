"""What a simulation reads of model and data beside the captured step."""

from __future__ import annotations

from dataclasses import dataclass, replace

from waferstream.config.params import TrainerConfig
from waferstream.core.program.program import UNKNOWN_LOADING, Loading
from waferstream.workload.packing import Packing

_MODEL, _DATA = "trainer.init.model", "trainer.fit.train_dataloader"


@dataclass(frozen=True)
class Facts:
    """What model and data of a configuration say."""

    group_of_samples: int = 1
    """Samples that share a loss, which no micro-batch may cut."""
    may_read_tokens: bool = True
    """False for a registered model that does not."""
    loading: Loading = UNKNOWN_LOADING
    packing: Packing | None = None
    """How full the sequences are; None where every place counts as a token."""


def facts_of(trainer: TrainerConfig) -> Facts:
    """Return the facts of a configuration, whose model and data processor are imported.

    Raises:
        ConfigError: A section is wrong.
    """
    from waferstream.workload.data import packing_of  # noqa: PLC0415  (torch)
    from waferstream.workload.models import known_config  # noqa: PLC0415

    model = known_config(trainer.init.model.dump(), _MODEL)
    facts = (
        Facts()
        if model is None
        else Facts(model.group_of_samples, may_read_tokens=model.language_sizes is not None)
    )
    if trainer.fit is None:
        return facts
    packing = packing_of(trainer.fit.train_dataloader.dump(), _DATA)
    return replace(facts, loading=training_loading(trainer), packing=packing)


def training_loading(trainer: TrainerConfig) -> Loading:
    """Return how the samples of a training configuration are loaded."""
    from waferstream.workload.data import data_processor  # noqa: PLC0415  (torch)

    assert trainer.fit is not None
    config = trainer.fit.train_dataloader
    loading = UNKNOWN_LOADING
    if config.class_path is None:
        loading = data_processor(config.dump(), _DATA).loading
    workers = trainer.init.backend.cluster_config.num_workers_per_csx
    return replace(loading, num_workers_per_csx=workers)
