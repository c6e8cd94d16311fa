"""Metrics whose state is on the cluster: ``update`` in a traced step, ``compute`` anywhere."""

from cstorch.metrics.classes import (
    DiceCoefficientMetric,
    FBetaScoreMetric,
    MeanIOUMetric,
    MeanPerClassAccuracyMetric,
)
from cstorch.metrics.means import AccuracyMetric, MeanMetric, PerplexityMetric
from cstorch.metrics.metric import Metric
from cstorch.metrics.ranking import AUCMetric, PrecisionAtKMetric, RecallAtKMetric

__all__ = [
    "AUCMetric",
    "AccuracyMetric",
    "DiceCoefficientMetric",
    "FBetaScoreMetric",
    "MeanIOUMetric",
    "MeanMetric",
    "MeanPerClassAccuracyMetric",
    "Metric",
    "PerplexityMetric",
    "PrecisionAtKMetric",
    "RecallAtKMetric",
]
