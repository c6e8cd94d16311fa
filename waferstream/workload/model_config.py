"""What the section of every registered model states: its name and its inputs."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import torch

from waferstream.core.config import Config


@dataclass(frozen=True)
class Feature:
    """One input tensor of a model, without its batch dimension."""

    name: str
    shape: tuple[int, ...]
    below: int | None = None
    """Integers are in [0, below); None means real numbers."""

    @property
    def dtype(self) -> torch.dtype:
        """int64 for integers, float32 for real numbers."""
        return torch.float32 if self.below is None else torch.int64


@dataclass(frozen=True)
class LanguageSizes:
    """Sizes of a transformer over tokens, by which a cluster of GPUs is modelled."""

    hidden: int
    layers: int
    heads: int
    max_length: int
    vocab: int
    tied_embeddings: bool
    learned_positions: bool


class ModelConfig(Config):
    """Configuration of a model that has a name."""

    name: str
    """Name of an entry point of models (waferstream.core.plugins)."""

    @property
    def learning_rate_scales(self) -> dict[str, float]:
        """Factors on the learning rate, by group of ``LEARNING_RATE_GROUPS``."""
        return {}

    @property
    def learning_rate_groups(self) -> Mapping[str, tuple[str, ...]] | None:
        """Globs of the parameters of each group that replaces ``LEARNING_RATE_GROUPS``."""
        return None

    @property
    def group_of_samples(self) -> int:
        """Consecutive samples that share a loss; micro-batches are multiples of it."""
        return 1

    @property
    def layers_of_unit(self) -> int:
        """Layers of a stack that take turns, where all units of them are equal."""
        return 1

    def as_read(self, section: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return this section of a params file without layers whose output nothing reads."""
        return section

    @property
    def language_sizes(self) -> LanguageSizes | None:
        """Sizes of a transformer over tokens; None for all other models."""
        return None

    @abstractmethod
    def features(self, sequence_length: int | None = None) -> tuple[Feature, ...]:
        """Return the inputs of one sample, by the argument names of the model's ``forward``.

        Args:
            sequence_length: Tokens of a sample; by default the longest sequence that the model
                takes. Ignored by models that do not read sequences.
        """

    def for_data(self, section: Mapping[str, Any]) -> Self:
        """Return the configuration with what a dataloader section states of the inputs."""
        del section
        return self
