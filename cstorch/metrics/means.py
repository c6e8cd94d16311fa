"""Metrics that are a quotient of two sums: accuracy, mean, perplexity."""

from __future__ import annotations

import torch

from cstorch.metrics.metric import Metric, ratio, weighted, zeros


class Quotient(Metric):
    """A sum of weighted values over the sum of their weights."""

    total: torch.Tensor
    count: torch.Tensor

    def __init__(self, name: str | None = None) -> None:
        super().__init__(name)
        self.register_state("total", zeros())
        self.register_state("count", zeros())

    def compute(self) -> torch.Tensor:
        """Return the quotient in fp32, 0 before the first update."""
        return ratio(self.total, self.count).float()

    def _add(self, values: torch.Tensor, weights: torch.Tensor | None) -> None:
        self.total += weighted(values, weights).sum().double()
        counted = torch.ones_like(values) if weights is None else weights.expand_as(values)
        self.count += counted.float().sum().double()


class AccuracyMetric(Quotient):
    """The share of predictions that are the label.

    ``update`` takes labels and predicted labels of one shape, and a weight of each. ``dtype`` has
    no effect, as everywhere in this package: counts are exact.
    """

    def update(
        self,
        labels: torch.Tensor,
        predictions: torch.Tensor,
        weights: torch.Tensor | None = None,
        dtype: torch.dtype | None = None,  # noqa: ARG002
    ) -> None:
        """Add labels and predictions."""
        self._add(labels == predictions, weights)


class MeanMetric(Quotient):
    """The mean of values."""

    def update(
        self,
        value: torch.Tensor,
        weight: torch.Tensor | float = 1.0,
        dtype: torch.dtype | None = None,  # noqa: ARG002
    ) -> None:
        """Add values, each with its weight."""
        self._add(value, torch.as_tensor(weight))


class PerplexityMetric(Quotient):
    """The exponential of the loss per token.

    ``update`` takes the sum of the losses of all tokens; the tokens are the sum of ``weights``, or
    the number of labels.
    """

    def update(
        self,
        labels: torch.Tensor,
        loss: torch.Tensor,
        weights: torch.Tensor | None = None,
        dtype: torch.dtype | None = None,  # noqa: ARG002
    ) -> None:
        """Add the loss of labels."""
        self.total += loss.float().sum().double()
        tokens = torch.ones_like(labels) if weights is None else weights
        self.count += tokens.float().sum().double()

    def compute(self) -> torch.Tensor:
        """Return the perplexity in fp32."""
        return ratio(self.total, self.count).exp().float()
