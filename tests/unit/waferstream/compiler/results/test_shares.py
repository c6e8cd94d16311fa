"""What a micro-batch counts follows from how a step grows with its samples."""

import logging
from collections.abc import Callable, Sequence

import pytest
import torch
import torch.nn.functional as F

from tests.support.errors import raises
from tests.support.roles.local_machine import FP32
from waferstream.compiler.capture.captured import Captured, separated
from waferstream.compiler.derivation.recording import record
from waferstream.compiler.results.shares import Shared, share_batch
from waferstream.core.errors import ApplianceCompilationError

Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
ROWS, BATCH = 4, 11


def captured_at(size: int, *results: Loss) -> Captured:
    """Return the step of results, of which the first is the loss, at a number of samples."""
    torch.manual_seed(0)
    model = torch.nn.Linear(3, 3)

    def step(batch: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        values = [result(model(batch[0]), batch[1]) for result in results]
        values[0].backward()
        return values

    batch = [("x", torch.zeros(size, 3)), ("y", torch.zeros(size, 3))]
    return separated(record(step, model, batch, FP32).at(size))


def shared(*results: Loss, rows: int = ROWS) -> Shared:
    return share_batch(captured_at(rows, *results), captured_at(BATCH, *results))


def seed_of(found: Shared) -> object:
    (seed,) = found.captured.seeds
    return seed.args[1]


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
        lambda x, y: F.mse_loss(x, y) + 0.5,
    ],
)
@pytest.mark.parametrize("rows", [ROWS, 1])
def test_mean_over_samples_counts_by_its_samples(loss: Loss, rows: int) -> None:
    """Also one that Python divides by the number of samples."""
    found = shared(loss, rows=rows)
    assert (seed_of(found), found.totals) == (rows / BATCH, ())


@pytest.mark.parametrize(
    "loss",
    [
        lambda x, _: x.sum(),
        lambda x, y: F.mse_loss(x, y, reduction="sum") / 8,
        lambda x, y: (x - y).square().mean(1).sum() * 0.5,
        lambda x, y: x.sum() - F.l1_loss(x, y, reduction="sum"),
        lambda x, y: x.mean() + x.sum(),
        lambda x, y: x.sum() / (x.shape[0] + 1),
        lambda x, y: x.sum() / y.sum(),
    ],
)
@pytest.mark.parametrize("rows", [ROWS, 1])
def test_sum_counts_in_full(loss: Loss, rows: int) -> None:
    """So does what is made a sum: terms that count differently, and a quotient by the inputs."""
    found = shared(loss, rows=rows)
    assert (seed_of(found), found.totals) == (1.0, (0,))


def test_results_count_one_by_one() -> None:
    """A mean to train, and a sum and a mean to show."""
    found = shared(F.mse_loss, lambda x, _: x.sum(), lambda x, _: x.mean())
    assert (seed_of(found), found.totals) == (ROWS / BATCH, (1,))


def test_result_that_relates_samples_is_shown_with_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It trains nothing, so the step runs."""
    with caplog.at_level(logging.WARNING, "waferstream"):
        shared(F.mse_loss, lambda x, _: x.std())
    assert "not that of the batch: std relates samples" in caplog.text


def test_value_of_the_inputs_is_computed_on_the_batch() -> None:
    """Every micro-batch gets it as an input; one with rows is cut."""
    found = shared(lambda x, y: (x.sum(1) * y[:, 0].softmax(0)).sum() / y.max())
    assert found.values is not None
    y = torch.randn(BATCH, 3)
    weights, most = found.values.build()(torch.zeros(BATCH, 3), y)
    assert torch.equal(weights, y[:, 0].softmax(0))
    assert torch.equal(most, y.max())
    assert [spec.shape for spec in found.captured.inputs] == [(ROWS, 3), (ROWS, 3), (ROWS,)]
    assert [spec.shape for spec in found.captured.whole] == [()]


def test_other_ops_for_another_number_of_samples_are_refused() -> None:
    """Nothing tells then what a loss reduces."""
    with raises(ApplianceCompilationError, "ops-depend-on-batch-size"):
        shared(lambda x, _: x.square().mean() if len(x) > ROWS else x.exp().mean())


def test_single_sample_may_be_computed_by_other_views() -> None:
    """Torch copies what it can view for one sample."""

    def viewed(x: torch.Tensor, _: torch.Tensor) -> torch.Tensor:
        return x.mean() if len(x) == 1 else x.clone().view(-1).mean()

    assert seed_of(shared(viewed, rows=1)) == 1 / BATCH
