"""Means over labels in a captured step: which are found, and what counts their labels."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.support.roles.local_machine import FP32
from waferstream.compiler.compile import CompileRequest, compile_step
from waferstream.compiler.compiled import Compiled, compiled_from_json, compiled_to_json
from waferstream.core.program.label_means import SEED_INPUT

CLASSES = 5
LABELS = torch.tensor([[1, -100, 2], [-100, 4, 0]])
MASK = torch.tensor([[1, 1, 0], [1, 0, 0]])
X = torch.randn(2, 3, 4)

Loss = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]


class Classifier(nn.Module):
    """Class scores of every position, and a buffer with weights of classes."""

    class_weights: torch.Tensor

    def __init__(self, loss: Loss) -> None:
        super().__init__()
        self.linear = nn.Linear(4, CLASSES)
        self.loss = loss

    def forward(self, x: torch.Tensor, labels: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Return the loss of (B, T, CLASSES) scores."""
        return self.loss(self.linear(x).flatten(0, 1), labels, mask)


def compiled(loss: Loss, *, trains: bool = True) -> Compiled:
    model = Classifier(loss)

    def step(batch: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        value = model(*batch)
        if trains:
            value.backward()
        return [value, model.linear(batch[0]).mean()]

    inputs = [("input_0", X), ("input_1", LABELS), ("input_2", MASK)]
    return compile_step(step, model, inputs, CompileRequest(FP32, 2, 3, "test"))[0]


def counts(found: Compiled) -> list[float]:
    assert found.label_counts is not None
    return [float(count) for count in found.label_counts.build()(X, LABELS, MASK)]


def token_losses(scores: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(scores, labels.flatten(), reduction="none")


def mean(scores: torch.Tensor, labels: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(scores, labels.flatten())


def masked(scores: torch.Tensor, labels: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return (token_losses(scores, labels) * mask.flatten()).sum() / mask.sum()


def clamped(scores: torch.Tensor, labels: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    summed = (token_losses(scores, labels) * mask.flatten()).sum()
    return summed / mask.to(torch.float32).sum().clamp(min=1)


def scaled(scores: torch.Tensor, labels: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return mean(scores, labels, mask).double() * 3 / 7 + 0.5


def shifted(scores: torch.Tensor, labels: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    padded = F.pad(labels, (0, 1), value=-100)[..., 1:].contiguous()
    return F.cross_entropy(scores, padded.flatten())


def overwritten(scores: torch.Tensor, labels: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    kept = labels.clone()
    kept.masked_fill_(mask == 0, -100)
    return F.cross_entropy(scores, kept.flatten())


def smoothed(scores: torch.Tensor, labels: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(scores, labels.flatten(), ignore_index=0, label_smoothing=0.1)


def weighted(scores: torch.Tensor, labels: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    weight = torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0])
    return F.cross_entropy(scores, labels.flatten(), weight)


@pytest.mark.parametrize(
    ("loss", "count"),
    [
        (mean, 4),
        (masked, 3),
        (clamped, 3),
        (scaled, 4),
        (shifted, 3),
        (overwritten, 1),
        (weighted, 2 + 3 + 5 + 1),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_label_mean_is_found_with_its_count(loss: Loss, count: float) -> None:
    """The count is what torch divides by."""
    found = compiled(loss)
    (label_mean,) = found.program.label_means
    assert counts(found) == [count]
    assert label_mean.count == 0
    assert label_mean.results == (0,)
    assert label_mean.is_loss
    assert any(SEED_INPUT in segment.inputs for segment in found.program.segments)


def square(scores: torch.Tensor, labels: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return scores.square().mean()


def summed(scores: torch.Tensor, labels: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(scores, labels.flatten(), reduction="sum") / 6


def per_sample(scores: torch.Tensor, labels: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    losses = token_losses(scores, labels).view(len(labels), 3) * mask
    return (losses.sum(1) / mask.sum(1)).mean()


@pytest.mark.parametrize("loss", [square, summed, per_sample])
def test_other_losses_are_left_as_they_are(loss: Loss) -> None:
    """Means over samples, and sums, count no labels."""
    found = compiled(loss)
    assert found.program.label_means == ()
    assert found.label_counts is None
    assert all(SEED_INPUT not in segment.inputs for segment in found.program.segments)


def test_label_mean_beside_another_term_becomes_a_quotient() -> None:
    """Both terms are sums then: the labels of the batch are an input."""
    for other in (square, masked):
        found = compiled(lambda *batch, other=other: mean(*batch) + 0.1 * other(*batch))
        program = found.program
        assert program.label_means == ()
        assert program.totals == (0,)
        assert program.whole
        assert found.whole is not None


def test_both_terms_of_label_smoothing_count_the_same_labels() -> None:
    """Their counts are other ops of equal value."""
    found = compiled(smoothed)
    assert set(counts(found)) == {float((LABELS != 0).sum())}


def test_evaluation_weighs_its_results() -> None:
    """There is no gradient to start from."""
    (label_mean,) = compiled(mean, trains=False).program.label_means
    assert label_mean.results == (0,)
    assert not label_mean.is_loss


def test_finding_label_means_keeps_the_ops_of_the_step() -> None:
    """Work, and with it emulated time, is that of the loss as it is written."""
    ops = [work.op for segment in compiled(masked).program.segments for work in segment.work]
    assert ops.count("full_like") == 1
    assert "ne" not in ops
    assert "div" in ops


def test_label_counts_survive_the_compile_cache() -> None:
    """A cached program weighs its micro-batches as a new one does."""
    found = compiled(mean)
    again = compiled_from_json(compiled_to_json(found), found.program.digest)
    assert again == found
    assert counts(again) == [4]
