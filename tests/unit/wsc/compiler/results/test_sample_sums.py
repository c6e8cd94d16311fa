"""Means and sums over samples are told apart by how a step grows."""

from collections.abc import Callable, Sequence

import pytest
import torch
import torch.nn.functional as F

from tests.support.errors import raises
from tests.support.roles.local_machine import FP32
from wsc.compiler.capture.captured import Captured, separated
from wsc.compiler.derivation.recording import record
from wsc.compiler.results.sample_sums import loss_adds_samples, sums_over_samples
from wsc.core.errors import ApplianceCompilationError

Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def captured_at(size: int, *results: Loss) -> Captured:
    """Return the step of results, of which the first is the loss, at a number of samples."""
    model = torch.nn.Linear(3, 3)

    def step(batch: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        values = [result(model(batch[0]), batch[1]) for result in results]
        values[0].backward()
        return values

    batch = [("x", torch.zeros(size, 3)), ("y", torch.zeros(size, 3))]
    return separated(record(step, model, batch, FP32).at(size))


def found(*results: Loss, sizes: tuple[int, int] = (5, 4)) -> tuple[tuple[int, ...], bool]:
    """Return the sums among results, of which the first is the loss, at two numbers of samples."""
    larger, smaller = sizes
    return sums_over_samples(captured_at(larger, *results), captured_at(smaller, *results))


@pytest.mark.parametrize(
    ("loss", "adds"),
    [
        (lambda x, y: F.mse_loss(x, y, reduction="sum"), True),
        (lambda x, y: F.mse_loss(x, y, reduction="sum") - 0.5 * x.sum(), True),
        (lambda x, y: (x - y).square().sum(), True),
        (lambda x, y: (x - y).abs().sum(1).sum() + x.square().mean(), True),
        (lambda x, y: F.mse_loss(x, y, reduction="none").sum(), True),
        (lambda x, y: F.cross_entropy(x, y[:, 0].long(), reduction="none").sum(), False),
        (lambda x, y: (x.mean(0) - y.mean(0)).square().sum(), False),
        (lambda x, _: x.square().sum(), False),  # it may have been divided before
        (lambda x, y: ((x - y) / x.shape[0]).abs().sum(), False),
        (lambda x, y: F.mse_loss(x, y, reduction="sum") / x.shape[0], False),
        (lambda x, y: F.mse_loss(x, y, reduction="none").sum() / x.shape[0], False),
        (F.mse_loss, False),
    ],
)
def test_sum_that_is_sure_is_found_at_one_size(loss: Loss, adds: bool) -> None:
    """A user who takes it for the sum of the whole batch is warned."""
    assert loss_adds_samples(captured_at(4, loss)) is adds


@pytest.mark.parametrize(
    "loss",
    [
        F.mse_loss,
        lambda x, y: (x * y).mean(),
        lambda x, y: (x - y).sum() / x.shape[0],
        lambda x, _: (x.sum(1) * (0.5 / x.shape[0])).sum(),
        lambda x, _: x.mean(0).sum(),
        lambda x, y: F.huber_loss(x, y) - 2 * x.mean(),
        lambda x, y: F.cross_entropy(x, y.softmax(1)),
    ],
)
def test_mean_over_samples_is_no_sum(loss: Loss) -> None:
    """Also one that Python divides by the number of samples."""
    assert found(loss) == ((), False)


@pytest.mark.parametrize(
    "loss",
    [
        lambda x, _: x.sum(),
        lambda x, y: F.mse_loss(x, y, reduction="sum") / 8,
        lambda x, y: (x - y).square().mean(1).sum() * 0.5,
        lambda x, y: x.sum() - F.l1_loss(x, y, reduction="sum"),
    ],
)
def test_sum_over_samples_is_found(loss: Loss) -> None:
    """Constants do not make it a mean."""
    assert found(loss) == ((0,), True)


def test_results_are_told_apart_one_by_one() -> None:
    """A mean to train, and a sum and a mean to show."""
    assert found(F.mse_loss, lambda x, _: x.sum(), lambda x, _: x.mean()) == ((1,), False)


def test_a_mean_and_a_sum_in_one_result_are_refused() -> None:
    """No weight of a micro-batch fits both."""
    with raises(ApplianceCompilationError, "result-neither-mean-nor-sum"):
        found(lambda x, _: x.mean() + x.sum())


def test_a_single_sample_may_be_computed_by_other_ops() -> None:
    """It is recorded by a run of its own, in which Python may take other branches."""

    def viewed(x: torch.Tensor, _: torch.Tensor) -> torch.Tensor:
        return x.sum() if len(x) == 1 else x.sum().view(1).squeeze()

    def mean(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return F.l1_loss(x, y) if len(x) == 1 else (x - y).abs().mean()

    assert found(mean, viewed, sizes=(2, 1)) == ((1,), False)
