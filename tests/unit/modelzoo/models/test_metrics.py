"""Metrics that a language model computes in an evaluation."""

from __future__ import annotations

import torch

from modelzoo.models.metrics import LanguageMetrics


def test_masked_tokens_count_for_no_metric() -> None:
    metrics = LanguageMetrics()
    labels = torch.tensor([[0, 1, 2], [1, 1, 0]])
    scores = torch.nn.functional.one_hot(torch.tensor([[0, 1, 1], [0, 1, 1]]), 3).float()
    weights = torch.tensor([[1, 1, 1], [0, 1, 0]])
    losses = torch.tensor([0.1, 0.2, 0.3, 9.0, 0.4, 9.0])
    metrics(labels, scores, weights, losses)
    assert float(metrics.accuracy) == 0.75
    torch.testing.assert_close(metrics.perplexity.compute(), torch.tensor(0.25).exp())
