"""Metrics that models compute in an evaluation."""

from __future__ import annotations

import torch
from torch import nn

from cstorch.metrics import AccuracyMetric, PerplexityMetric


class LanguageMetrics(nn.Module):
    """Accuracy and perplexity of the next tokens, under the vendor's names."""

    def __init__(self) -> None:
        super().__init__()
        self.accuracy = AccuracyMetric("eval/accuracy")
        self.perplexity = PerplexityMetric("eval/lm_perplexity")

    def forward(
        self,
        labels: torch.Tensor,
        scores: torch.Tensor,
        weights: torch.Tensor,
        losses: torch.Tensor,
    ) -> None:
        """Add the tokens of a micro-batch.

        Args:
            labels: Next tokens, (B, T).
            scores: Scores of each token, (B, T, vocab_size).
            weights: 1 for labels that count, (B, T).
            losses: The loss of each label, (B T,).
        """
        self.accuracy(labels, scores.argmax(-1), weights)
        counted = losses * weights.flatten().to(losses.dtype)
        self.perplexity(labels, counted, weights)
