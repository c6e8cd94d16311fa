"""Metrics of scores: area under a curve, precision and recall among the k highest."""

from __future__ import annotations

import torch

from cstorch.metrics.means import Quotient
from cstorch.metrics.metric import Metric, ratio, weighted, zeros
from waferstream.core.errors import ConfigError


class AUCMetric(Metric):
    """The area under a curve over thresholds of a probability.

    The trapezoidal rule gives the area under ROC. Under PR precision is interpolated between two
    thresholds as if the samples between them came in their proportion (Davis and Goadrich 2006,
    "The Relationship Between Precision-Recall and ROC Curves", section 4).

    Args:
        num_thresholds: Points of the curve, evenly spaced from below 0 to above 1.
        curve: ``ROC`` (true against false positive rate) or ``PR`` (precision against recall).
        name: The name of the metric.
        summation_method: Only ``interpolation``.
    """

    thresholds: torch.Tensor
    positives: torch.Tensor
    negatives: torch.Tensor

    def __init__(
        self,
        num_thresholds: int = 200,
        curve: str = "ROC",
        name: str | None = None,
        summation_method: str = "interpolation",
    ) -> None:
        super().__init__(name)
        if curve not in ("ROC", "PR"):
            raise ConfigError(
                "curve must be ROC or PR", code="curve-unknown", where="AUCMetric", value=curve
            )
        if summation_method != "interpolation":
            raise ConfigError(
                "summation_method must be interpolation",
                code="summation-method-unknown",
                where="AUCMetric",
                value=summation_method,
            )
        self.curve = curve
        inner = torch.linspace(0, 1, num_thresholds)[1:-1]
        ends = torch.tensor([-1e-7]), torch.tensor([1 + 1e-7])
        thresholds = torch.cat([ends[0], inner, ends[1]])
        self.register_buffer("thresholds", thresholds, persistent=False)
        # Samples above each threshold; at the first one, all.
        self.register_state("positives", zeros(num_thresholds))
        self.register_state("negatives", zeros(num_thresholds))

    def update(
        self,
        labels: torch.Tensor,
        predictions: torch.Tensor,
        weights: torch.Tensor | None = None,
        dtype: torch.dtype | None = None,  # noqa: ARG002
    ) -> None:
        """Add labels (0 or 1) and probabilities of one shape."""
        above = predictions.float().flatten() > self.thresholds[:, None]
        is_positive = labels.flatten() > 0
        flat = None if weights is None else weights.flatten()
        self.positives += weighted(above & is_positive, flat).sum(1).double()
        self.negatives += weighted(above & ~is_positive, flat).sum(1).double()

    def compute(self) -> torch.Tensor:
        """Return the area in fp32."""
        if self.curve == "PR":
            return self._precision_recall_area().float()
        x = ratio(self.negatives, self.negatives[0])
        y = ratio(self.positives, self.positives[0])
        return ((x[:-1] - x[1:]) * (y[:-1] + y[1:]) / 2).sum().float()

    def _precision_recall_area(self) -> torch.Tensor:
        """Return the integral of precision over recall.

        Between two thresholds the true positives are a + s n among n predicted positives, so the
        integral of their quotient (a / n + s) over the true positives, s dn, is s (a ln n + s n).
        """
        predicted = self.positives + self.negatives
        more, fewer = predicted[:-1], predicted[1:]
        gained = self.positives[:-1] - self.positives[1:]
        slope = ratio(gained, more - fewer)
        intercept = self.positives[1:] - slope * fewer
        growth = torch.where((more > 0) & (fewer > 0), ratio(more, fewer), 1.0)
        area = slope * (gained + intercept * growth.log())
        return ratio(area, self.positives[0].expand_as(area)).sum()


class _AtK(Quotient):
    """Hits among the k highest scores of each sample.

    Args:
        k: How many of the highest scores are predictions.
        name: The name of the metric.
    """

    def __init__(self, k: int, name: str | None = None) -> None:
        super().__init__(name)
        self.k = k

    def _add_hits(
        self,
        labels: torch.Tensor,
        predictions: torch.Tensor,
        weights: torch.Tensor | None,
        counted: int | None,
    ) -> None:
        """Add samples that count ``counted`` times, or as often as they have labels."""
        labels = labels.reshape(*predictions.shape[:-1], -1)
        highest = predictions.topk(self.k, dim=-1).indices
        hits = (labels[..., :, None] == highest[..., None, :]).flatten(-2).sum(-1)
        self.total += weighted(hits, weights).sum().double()
        each = (labels >= 0).sum(-1) if counted is None else torch.full_like(hits, counted)
        self.count += weighted(each, weights).sum().double()


class PrecisionAtKMetric(_AtK):
    """The share of the k highest scores that are labels."""

    def update(
        self,
        labels: torch.Tensor,
        predictions: torch.Tensor,
        weights: torch.Tensor | None = None,
        dtype: torch.dtype | None = None,  # noqa: ARG002
    ) -> None:
        """Add scores (N, C) and labels (N) or (N, L), of which those below 0 are none."""
        self._add_hits(labels, predictions, weights, counted=self.k)


class RecallAtKMetric(_AtK):
    """The share of labels that are among the k highest scores."""

    def update(
        self,
        labels: torch.Tensor,
        predictions: torch.Tensor,
        weights: torch.Tensor | None = None,
        dtype: torch.dtype | None = None,  # noqa: ARG002
    ) -> None:
        """Add scores (N, C) and labels (N) or (N, L), of which those below 0 are none."""
        self._add_hits(labels, predictions, weights, counted=None)
