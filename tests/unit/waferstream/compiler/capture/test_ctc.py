"""The CTC loss of fixed shapes against that of torch, of which it is the traced form."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional

from tests.support.errors import raises
from waferstream.compiler.capture.ctc import ctc_loss
from waferstream.core.errors import ApplianceCompilationError

CLASSES = 4
PADDED = torch.tensor([[2, 2, 2], [1, 3, -1], [3, -1, 99]])
SAMPLES = st.lists(
    st.tuples(st.integers(0, 7), st.integers(0, 3), st.tuples(*[st.integers(1, 3)] * 3)),
    min_size=1,
    max_size=3,
)
"""Samples as (input length, target length, labels)."""


def scores_of(times: int, batch: int, seed: int = 0) -> torch.Tensor:
    """Return random scores in float64, before the softmax."""
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randn(times, batch, CLASSES, generator=generator, dtype=torch.float64)
    return scores.requires_grad_()


def compare(scores: torch.Tensor, *args: Any, **options: Any) -> None:
    """Compare values, and gradients by scores before and after the softmax."""
    found = []
    for loss in (ctc_loss, functional.ctc_loss):
        probabilities = scores.log_softmax(-1)
        value: torch.Tensor = loss(probabilities, *args, **options)
        found.append([value, *torch.autograd.grad(value.sum(), [scores, probabilities])])
    torch.testing.assert_close(*found, rtol=1e-9, atol=1e-9)


@settings(max_examples=60, deadline=None)
@given(SAMPLES, st.integers(0, 9), st.sampled_from(["none", "mean", "sum"]), st.booleans())
def test_loss_and_gradients_equal_those_of_torch(
    samples: list[tuple[int, int, tuple[int, ...]]], seed: int, reduction: str, in_tensors: bool
) -> None:
    """Labels repeat, targets are empty, inputs are too short, or have no times at all."""
    within, length, labels = zip(*samples, strict=True)
    lengths: tuple[Any, Any] = (within, length)
    if in_tensors:
        lengths = torch.tensor(within, dtype=torch.int32), torch.tensor(length)
    scores, options = scores_of(7, len(samples), seed), {"reduction": reduction}
    compare(scores, torch.tensor(labels), *lengths, **options, zero_infinity=True)


@pytest.mark.parametrize("blank", [1, 3])
def test_any_class_may_be_the_blank(blank: int) -> None:
    """Class 0 is a label then."""
    labels = torch.tensor([[0, 2, 0], [2, 2, 0]])
    compare(scores_of(7, 2), labels, (7, 6), (3, 2), blank=blank)


def test_padding_may_be_any_number() -> None:
    """What is behind a target's length is not read."""
    compare(scores_of(6, 3), PADDED, (6, 5, 4), (3, 2, 1))


def test_targets_without_labels_are_all_blank() -> None:
    """The targets of a batch may be empty."""
    compare(scores_of(5, 2), torch.zeros(2, 0, dtype=torch.long), (5, 3), (0, 0))


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_sample_without_a_batch_is_taken(reduction: str) -> None:
    """Its lengths are scalars."""
    scores = scores_of(6, 1)[:, 0]
    compare(scores, PADDED[0], torch.tensor(6), torch.tensor(3), reduction=reduction)


def test_input_that_is_too_short_gives_infinity() -> None:
    """Three equal labels take five times at least."""
    loss = ctc_loss(scores_of(4, 3).log_softmax(-1), PADDED, (4, 4, 4), (3, 2, 1), reduction="none")
    assert (loss == math.inf).tolist() == [True, False, False]


@pytest.mark.parametrize("lengths", [(7, 3), (-1, 3), (6, 4), (6, -1)])
def test_length_out_of_range_gives_nan(lengths: tuple[int, int]) -> None:
    """A loss that is not finite ends the run; a length cut in silence would not."""
    within, length = (torch.tensor([each, 1, 1]) for each in lengths)
    scores = scores_of(6, 3).log_softmax(-1)
    loss = ctc_loss(scores, PADDED, within, length, reduction="none", zero_infinity=True)
    assert loss.isnan().tolist() == [True, False, False]


def test_half_scores_give_a_loss_in_fp32() -> None:
    """Sums over many alignments are too coarse in a half type."""
    scores = scores_of(6, 3).log_softmax(-1).bfloat16()
    loss = ctc_loss(scores, PADDED, (6, 5, 4), (3, 2, 1))
    assert loss.dtype == torch.float32
    assert loss == ctc_loss(scores.float(), PADDED, (6, 5, 4), (3, 2, 1))


@pytest.mark.parametrize(
    ("code", "targets", "within", "blank"),
    [
        ("ctc-targets-not-padded", torch.ones(6), (6, 6, 6), 0),
        ("ctc-targets-not-padded", torch.ones(2, 3), (6, 6, 6), 0),
        ("ctc-arguments-do-not-fit", PADDED, (6, 6), 0),
        ("ctc-arguments-do-not-fit", PADDED, (6, 6, 6), CLASSES),
    ],
)
def test_arguments_that_do_not_fit_are_refused(
    code: str, targets: torch.Tensor, within: tuple[int, ...], blank: int
) -> None:
    """One length would hold for all samples otherwise."""
    with raises(ApplianceCompilationError, code):
        ctc_loss(scores_of(6, 3), targets, within, (3, 2, 1), blank)
