"""Every metric over three batches: its value at the end."""

from __future__ import annotations

from functools import partial
from typing import Any

import cerebras.pytorch as cstorch
import torch
from harness import Results, formula_tensor, main

STEPS = 3
CLASSES = 5


class Measured(torch.nn.Module):
    """A model with one metric, which the forward function updates."""

    def __init__(self, metric: Any, arguments: Any) -> None:
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(1))
        self.metric = metric
        self.arguments = arguments

    def forward(self, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        self.metric(**self.arguments(batch))
        return (batch["scores"] * self.scale).sum()


def batches() -> list[dict[str, torch.Tensor]]:
    """Return scores, labels, binary labels and weights of all batches."""
    result = []
    for step in range(STEPS):
        scores = formula_tensor((6, 4, CLASSES), 2.0 * step)
        labels = (torch.arange(24).view(6, 4) * 7 + step * 3) % CLASSES
        weights = (torch.arange(24).view(6, 4) % 3 != step % 3).float()
        chance = torch.sigmoid(3 * formula_tensor((6, 4), step))
        binary = ((torch.arange(24).view(6, 4) * 5 + step) % 3 == 0).long()
        batch = {"scores": scores, "labels": labels, "weights": weights}
        result.append({**batch, "chance": chance, "binary": binary})
    return result


def evaluate(name: str, make: Any, arguments: Any, device: str) -> Results:
    """Return the value of a metric after all batches."""
    backend = cstorch.backend(device)
    cstorch.amp.enable_mixed_precision(False)
    with backend.device:
        model = Measured(make(getattr(cstorch.metrics, name)), arguments)
    model.eval()
    compiled = cstorch.compile(model, backend)

    @cstorch.trace
    @torch.no_grad()
    def evaluation_step(batch: Any) -> Any:
        return compiled(batch)

    values: list[float] = []

    @cstorch.step_closure
    def log(result: Any) -> None:
        result.item()
        values.append(float(model.metric.compute()))

    loader = cstorch.utils.data.DataLoader(batches)
    for batch in cstorch.utils.data.DataExecutor(loader, num_steps=STEPS):
        log(evaluation_step(batch))
    return {"values": values}


def predicted(batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return labels and predicted labels."""
    predictions = batch["scores"].argmax(-1)
    return {"labels": batch["labels"], "predictions": predictions}


def weighted(batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return labels, predicted labels and weights."""
    return {**predicted(batch), "weights": batch["weights"]}


def binary(batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return binary labels and probabilities."""
    return {"labels": batch["binary"], "predictions": batch["chance"]}


def ranked(batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return labels and the scores of all classes."""
    return {"labels": batch["labels"][:, :1], "predictions": batch["scores"][:, 0]}


def loss(batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return labels, the sum of their losses, and weights."""
    logits, labels = batch["scores"].flatten(0, 1), batch["labels"].flatten()
    losses = torch.nn.functional.cross_entropy(logits, labels, reduction="none")
    weights = batch["weights"].flatten()
    return {"labels": labels, "loss": (losses * weights).sum(), "weights": weights}


def measure(kind: str, arguments: Any, *positional: Any, **options: Any) -> Any:
    """Return the case of one metric."""
    return partial(evaluate, kind, lambda made: made(*positional, **options), arguments)


NAME = {"name": "measured"}
IGNORED = {"ignore_classes": [1]}
CASES = {
    "accuracy": measure("AccuracyMetric", predicted, **NAME),
    "accuracy-weighted": measure("AccuracyMetric", weighted, **NAME),
    "mean": measure("MeanMetric", lambda batch: {"value": batch["chance"].mean()}, **NAME),
    "mean-weight": measure(
        "MeanMetric", lambda b: {"value": b["chance"].mean(), "weight": b["weights"].sum()}, **NAME
    ),
    "perplexity": measure("PerplexityMetric", loss, **NAME),
    "auc": measure("AUCMetric", binary, **NAME),
    "auc-precision-recall": measure("AUCMetric", binary, curve="PR", **NAME),
    "auc-weighted": measure("AUCMetric", lambda b: {**binary(b), "weights": b["weights"]}, **NAME),
    "dice": measure("DiceCoefficientMetric", predicted, CLASSES, **NAME),
    "dice-ignored": measure("DiceCoefficientMetric", weighted, CLASSES, **IGNORED, **NAME),
    "f1": measure("FBetaScoreMetric", predicted, CLASSES, **NAME),
    "f2-macro": measure(
        "FBetaScoreMetric", predicted, CLASSES, beta=2.0, average_type="macro", **NAME
    ),
    "f1-ignored": measure("FBetaScoreMetric", predicted, CLASSES, ignore_labels=[1], **NAME),
    "iou": measure("MeanIOUMetric", predicted, CLASSES, **NAME),
    "iou-ignored": measure("MeanIOUMetric", weighted, CLASSES, **IGNORED, **NAME),
    "accuracy-per-class": measure("MeanPerClassAccuracyMetric", predicted, CLASSES, "measured"),
    "accuracy-per-class-weighted": measure("MeanPerClassAccuracyMetric", weighted, CLASSES, **NAME),
    "precision-at-2": measure("PrecisionAtKMetric", ranked, 2, **NAME),
    "recall-at-2": measure("RecallAtKMetric", ranked, 2, **NAME),
}

if __name__ == "__main__":
    main(CASES)
