"""Small batches, and random data of a small model where this host lacks those that a file names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from waferstream.config.params import TrainerConfig
from waferstream.config.shrinking.sizes import shrunk_data_size
from waferstream.core.errors import DataError
from waferstream.workload import user_classes
from waferstream.workload.data import build_source
from waferstream.workload.model_config import Feature, ModelConfig

_RANDOM = ("DummyDataProcessor", "DummyIterableDataProcessor", "SyntheticDataProcessor")
"""Data that need no file, and so take any size."""
SYNTHETIC = _RANDOM[-1]
_SAMPLES = 64
_GROUPS = 8
"""Most groups of samples, of one sample in most models, of a batch: as many micro-batches."""
_CHECKPOINTS = ("ckpt_path", "ckpt_paths")
"""Keys of files whose weights have other shapes than those of a small model."""


def absent_data(trainer: TrainerConfig) -> frozenset[str]:
    """Return the key paths of the dataloaders without data: all of them, if the first has none."""
    loaders = {where: loader.dump() for where, loader in trainer.dataloaders()}
    first = next(iter(loaders), None)
    if first is not None and _is_absent(loaders[first], first):
        return frozenset(loaders)
    return frozenset(where for where, section in loaders.items() if _is_absent(section, where))


def _is_absent(section: dict[str, Any], where: str) -> bool:
    """Return whether a section has no data of its own; a loader of the user's has."""
    if user_classes.CLASS in section:
        return False
    if section.get("data_processor") in _RANDOM:
        return True
    try:
        build_source(section, where)
    except (DataError, OSError):
        return True
    return False


@dataclass(frozen=True)
class SmallData:
    """What dataloaders become beside a small model."""

    model: ModelConfig | None
    """The small model; None for a class of the user's."""
    absent: frozenset[str]
    """Key paths of the dataloaders that get synthetic data."""
    shrinks: bool
    """Whether sequences and vocabularies of synthetic data are those of the small model."""

    def section(self, section: Any, where: str) -> Any:
        """Return the section of a mode, at a key path, with its dataloaders made small."""
        if isinstance(section, list):
            numbered = enumerate(section)
            return [self.section(each, f"{where}[{number}]") for number, each in numbered]
        if not isinstance(section, Mapping):
            return section
        if where in self.absent:
            return self._synthetic(section)
        if "batch_size" in section:
            return {**section, "batch_size": self._batch_size(section)}
        kept = {key: value for key, value in section.items() if key not in _CHECKPOINTS}
        return {key: self.section(value, f"{where}.{key}") for key, value in kept.items()}

    def _synthetic(self, section: Mapping[str, Any]) -> dict[str, Any]:
        """Return a section of random tensors that the model reads, as few as fill some batches."""
        assert self.model is not None, "only a registered model has a registered data processor"
        stated = {key: self._size(key, value) for key, value in section.items()}
        features = self.model.for_data(stated).features(stated.get("max_sequence_length"))
        batch_size = self._batch_size(section)
        return {
            "data_processor": SYNTHETIC,
            "batch_size": batch_size,
            "num_examples": max(_SAMPLES, batch_size),
            "synthetic_inputs": {each.name: _described(each) for each in features},
        }

    def _size(self, key: str, value: Any) -> Any:
        is_size = self.shrinks and isinstance(value, int)
        return shrunk_data_size(key, value) if is_size else value

    def _batch_size(self, section: Mapping[str, Any]) -> int:
        group = 1 if self.model is None else self.model.group_of_samples
        return min(int(section["batch_size"]), _GROUPS * group)


def _described(feature: Feature) -> dict[str, Any]:
    shape = list(feature.shape)
    return {"shape": shape} if feature.below is None else {"shape": shape, "high": feature.below}
