"""Metrics of a confusion matrix: F-beta, intersection over union, Dice, accuracy per class."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

import torch

from cstorch.metrics.metric import Metric, ratio, zeros
from waferstream.core.errors import ConfigError


class _Counts(NamedTuple):
    """Predictions of each class by whether they were right."""

    true: torch.Tensor
    false: torch.Tensor
    missed: torch.Tensor  # labels of the class that were predicted as another


class _Confusion(Metric):
    """A matrix of counts by label and predicted label, without those outside of the classes.

    Args:
        num_classes: Labels are 0 to ``num_classes`` - 1.
        ignore_labels: Classes that are no part of the mean.
        name: The name of the metric.
    """

    matrix: torch.Tensor
    kept: torch.Tensor

    def __init__(
        self,
        num_classes: int,
        ignore_labels: Collection[int] | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__(name)
        self.num_classes = num_classes
        self.register_state("matrix", zeros(num_classes, num_classes))
        ignored = set(ignore_labels or ())
        kept = [label not in ignored for label in range(num_classes)]
        self.register_buffer("kept", torch.tensor(kept), persistent=False)

    def update(
        self,
        labels: torch.Tensor,
        predictions: torch.Tensor,
        weights: torch.Tensor | None = None,
        dtype: torch.dtype | None = None,  # noqa: ARG002
    ) -> None:
        """Add labels and predicted labels of one shape."""
        count = self.num_classes
        labels, predictions = labels.long().flatten(), predictions.long().flatten()
        known = (labels >= 0) & (labels < count) & (predictions >= 0) & (predictions < count)
        places = torch.where(known, labels * count + predictions, 0)
        if weights is not None:
            known = known * weights.float().flatten()
        cells = torch.zeros(count * count).scatter_add(0, places, known.float())
        self.matrix += cells.view(count, count).double()

    def _counts(self) -> _Counts:
        true = self.matrix.diagonal()
        return _Counts(true, self.matrix.sum(0) - true, self.matrix.sum(1) - true)

    def _mean(self, numerator: torch.Tensor, denominator: torch.Tensor) -> torch.Tensor:
        """Return the mean quotient of the kept classes that occur."""
        counted = self.kept & (denominator != 0)
        quotients = torch.where(counted, ratio(numerator, denominator), 0.0)
        return ratio(quotients.sum(), counted.sum().double()).float()


class FBetaScoreMetric(_Confusion):
    """The weighted harmonic mean of precision and recall: (1 + b^2) p r / (b^2 p + r).

    Args:
        num_classes: Labels are 0 to ``num_classes`` - 1.
        beta: Weight of the recall.
        average_type: ``micro`` counts all kept classes together; ``macro`` is the mean of the
            scores of the kept classes.
        ignore_labels: Classes that are not kept.
        name: The name of the metric.
    """

    def __init__(
        self,
        num_classes: int,
        beta: float = 1.0,
        average_type: str = "micro",
        ignore_labels: Collection[int] | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__(num_classes, ignore_labels, name)
        if average_type not in ("micro", "macro"):
            raise ConfigError(
                "average_type must be micro or macro",
                code="average-type-unknown",
                where="FBetaScoreMetric",
                value=average_type,
            )
        self.beta = beta
        self.average_type = average_type

    def compute(self) -> torch.Tensor:
        """Return the score in fp32."""
        counts = [torch.where(self.kept, count, 0.0) for count in self._counts()]
        if self.average_type == "micro":
            counts = [count.sum() for count in counts]
        true, false, missed = counts
        square = self.beta**2
        scores = ratio((1 + square) * true, (1 + square) * true + square * missed + false)
        total = scores.sum()
        return (total if self.average_type == "micro" else total / self.kept.sum()).float()


class _ClassMean(_Confusion):
    """A mean over classes, of which some may be left out.

    Args:
        num_classes: Labels are 0 to ``num_classes`` - 1.
        ignore_classes: Classes that are no part of the mean.
        name: The name of the metric.
    """

    def __init__(
        self,
        num_classes: int,
        ignore_classes: Collection[int] | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__(num_classes, ignore_classes, name)


class MeanIOUMetric(_ClassMean):
    """The mean over classes of intersection over union of labels and predictions."""

    def compute(self) -> torch.Tensor:
        """Return the mean in fp32."""
        true, false, missed = self._counts()
        return self._mean(true, true + false + missed)


class DiceCoefficientMetric(_ClassMean):
    """The mean over classes of twice the intersection over the sum of labels and predictions."""

    def compute(self) -> torch.Tensor:
        """Return the mean in fp32."""
        true, false, missed = self._counts()
        return self._mean(2 * true, 2 * true + false + missed)


class MeanPerClassAccuracyMetric(_Confusion):
    """The mean over classes of the share of their labels that were predicted.

    Args:
        num_classes: Labels are 0 to ``num_classes`` - 1.
        name: The name of the metric.
    """

    def __init__(self, num_classes: int, name: str | None = None) -> None:
        super().__init__(num_classes, None, name)

    def compute(self) -> torch.Tensor:
        """Return the mean in fp32."""
        true, _, missed = self._counts()
        return self._mean(true, true + missed)
