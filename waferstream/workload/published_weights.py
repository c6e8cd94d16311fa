"""Weights by the names and in the layouts of another zoo of the same models.

Packages offer them as entry points (``waferstream.core.plugins``), as ours does for the vendor's.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Protocol

from waferstream.core.plugins import Plugins
from waferstream.workload.hugging_face import Weights


class PublishedWeights(Protocol):
    """What converts the weights of our models from another zoo and to it."""

    def are_of(self, names: Collection[str], section: Mapping[str, Any]) -> bool:
        """Return whether weights with these names are the other zoo's of our model."""

    def matched(self, weights: Weights, section: Mapping[str, Any]) -> Weights:
        """Return the weights that our model has."""

    def to_ours(self, weights: Weights, section: Mapping[str, Any]) -> Weights:
        """Return the weights of our model."""

    def to_theirs(self, weights: Weights, section: Mapping[str, Any]) -> Weights:
        """Return the weights of the other zoo's model."""


PUBLISHED = Plugins[PublishedWeights]("published_weights")
"""By the name of the zoo."""


def publisher(names: Collection[str], section: Mapping[str, Any]) -> PublishedWeights | None:
    """Return the other zoo by whose names weights of a model go; None for our own names."""
    return next((zoo for zoo in PUBLISHED.values() if zoo.are_of(names, section)), None)


def of_our_names(weights: Weights, section: Mapping[str, Any]) -> Weights:
    """Return weights of a model by our names; those of another zoo are converted."""
    zoo = publisher(weights, section)
    return weights if zoo is None else zoo.to_ours(weights, section)
