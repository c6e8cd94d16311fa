"""Metrics that models compute in an evaluation."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import nn

from cstorch.metrics import AccuracyMetric, FBetaScoreMetric, MeanMetric, PerplexityMetric


class LanguageMetrics(nn.Module):
    """Accuracy and perplexity of the next tokens, under the vendor's names."""

    def __init__(
        self, accuracy: str = "eval/accuracy", perplexity: str = "eval/lm_perplexity"
    ) -> None:
        super().__init__()
        self.accuracy = AccuracyMetric(accuracy)
        self.perplexity = PerplexityMetric(perplexity)

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


class ClassifierMetrics(nn.Module):
    """Accuracies of classes, and of two classes the F1 score, under the vendor's names."""

    def __init__(self, num_classes: int) -> None:
        super().__init__()
        self.accuracy = AccuracyMetric("eval/accuracy")
        self.matched = AccuracyMetric("eval/accuracy_matched")
        self.mismatched = AccuracyMetric("eval/accuracy_mismatched")
        self.f1 = FBetaScoreMetric(num_classes, name="eval/f1_score") if num_classes == 2 else None

    def forward(
        self,
        labels: torch.Tensor,
        predictions: torch.Tensor,
        is_matched: torch.Tensor | None,
        is_mismatched: torch.Tensor | None,
    ) -> None:
        """Add the samples of a micro-batch.

        Args:
            labels: Classes, (B,).
            predictions: Predicted classes, (B,).
            is_matched: 1 for samples from the domains of the training data, (B,).
            is_mismatched: 1 for samples from others, (B,).
        """
        self.accuracy(labels, predictions)
        if self.f1 is not None:
            self.f1(labels, predictions)
        if is_matched is not None:
            self.matched(labels, predictions, is_matched)
        if is_mismatched is not None:
            self.mismatched(labels, predictions, is_mismatched)


class PreferenceMetrics(nn.Module):
    """Means over pairs of responses, under the vendor's names; rewards only with a reference."""

    def __init__(self, *, has_reference: bool) -> None:
        super().__init__()
        self.log_probabilities = _means("logps_chosen", "logps_rejected")
        names = ("chosen", "rejected", "accuracies", "margins") if has_reference else ()
        self.rewards = _means(*(f"rewards_{name}" for name in names))

    def forward(self, log_probabilities: torch.Tensor, rewards: torch.Tensor | None) -> None:
        """Add the pairs of a micro-batch.

        Args:
            log_probabilities: Of chosen and rejected responses, (B, 2).
            rewards: Of chosen and rejected responses, (B, 2); None without a reference.
        """
        _add(self.log_probabilities, log_probabilities.unbind(1))
        if rewards is not None:
            chosen, rejected = rewards.unbind(1)
            more = (chosen > rejected).float(), chosen - rejected
            _add(self.rewards, (chosen, rejected, *more))


class RetrievalMetrics(nn.Module):
    """Accuracy of the best passage, under the vendor's name, and mean rank of the right one."""

    def __init__(self) -> None:
        super().__init__()
        self.accuracy = AccuracyMetric("eval/accuracy")
        self.rank = MeanMetric("eval/mean_rank")

    def forward(self, scores: torch.Tensor, right: torch.Tensor) -> None:
        """Add the questions of a micro-batch.

        Args:
            scores: Scores of the passages of each question, (groups, G, passages).
            right: Number of the right passage of each question, (G,); its rank counts from 1.
        """
        labels = right.expand(scores.shape[:2])
        self.accuracy(labels, scores.argmax(-1))
        better = scores > scores.gather(-1, labels[..., None])
        self.rank(1.0 + better.float().sum(-1))


def _means(*names: str) -> nn.ModuleList:
    return nn.ModuleList(MeanMetric(f"eval/{name}") for name in names)


def _add(means: nn.ModuleList, values: Iterable[torch.Tensor]) -> None:
    for mean, each in zip(means, values, strict=True):
        mean(each)
