"""A batch that its micro-batches do not divide trains like a plain loop over ``tensor_split``."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import cstorch
from cstorch import backends
from scripts import reference_loop
from tests.support.models.masked_tokens import Masked, gpt_digest
from tests.support.programs.cstorch_program import executor, loader, losses, running_backend
from tests.support.roles.local_machine import random_batches
from tests.support.runs.tiny_training import GPT, Shape, init_config

ROWS = 11
BATCHES = random_batches(3, ROWS)
Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
MEANS: dict[str, Loss] = {
    "mean": F.mse_loss,
    "sum over samples": lambda x, y: (x - y).square().sum() / (4 * y.shape[0]),
    "scaled terms": lambda x, y: 0.5 * F.l1_loss(x, y) + (x * y).mean(1).sum() / y.size(0),
}
SUMS: dict[str, Loss] = {
    "sum and mean": lambda x, y: F.mse_loss(x, y) + 0.01 * x.square().sum(),
    "mse_loss": lambda x, y: F.mse_loss(x, y, reduction="sum") / 44,
    "sum": lambda x, y: (x - y).square().mean(1).sum() * 0.25,
}


class Net(nn.Module):
    """Two layers with a normalization over the samples of a micro-batch."""

    def __init__(self, loss: Loss, *, normalizes: bool = False) -> None:
        super().__init__()
        self.first, self.second, self.loss = nn.Linear(4, 4), nn.Linear(4, 4), loss
        self.norm = nn.BatchNorm1d(4, track_running_stats=False) if normalizes else nn.Identity()
        generator = torch.Generator().manual_seed(0)
        for parameter in self.parameters():
            nn.init.normal_(parameter, std=0.5, generator=generator)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        hidden = torch.tanh(self.norm(self.first(x)))
        return self.loss(self.second(hidden), y)


def train(net: Net, num_csx: int, size: Any) -> tuple[list[float], dict[str, torch.Tensor], str]:
    """Train on a cluster; return losses, weights and digest."""
    with running_backend(Shape(num_csx, 2, 2)) as backend:
        backends.csx.performance.micro_batch_size = size
        model = cstorch.compile(net, backend)
        optimizer = cstorch.optim.SGD(model.parameters(), lr=0.5)

        @cstorch.trace
        def step(batch: dict[str, torch.Tensor]) -> torch.Tensor:
            loss: torch.Tensor = model(**batch)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            return loss

        seen = losses(step, executor(len(BATCHES), loader(partial(random_batches, 3, ROWS))))
        weights = {name: p.detach().clone() for name, p in model.named_parameters()}
        return seen, weights, backend.weights_digest()


def plain(net: Net, shares: Sequence[float]) -> tuple[list[float], dict[str, torch.Tensor]]:
    """Train in a plain loop, in which micro-batch i counts with ``shares[i]``."""
    optimizer, seen = torch.optim.SGD(net.parameters(), lr=0.5), []
    for batch in BATCHES:
        optimizer.zero_grad()
        xs, ys = (batch[name].tensor_split(len(shares)) for name in ("x", "y"))
        parts = [share * net(x, y) for share, x, y in zip(shares, xs, ys, strict=True)]
        loss = torch.stack(parts).sum()
        loss.backward()
        optimizer.step()
        seen.append(loss.item())
    return seen, {name: p.detach() for name, p in net.named_parameters()}


@pytest.mark.parametrize("normalizes", [False, True])
@pytest.mark.parametrize("name", MEANS)
def test_a_mean_weighs_micro_batches_by_their_samples(name: str, normalizes: bool) -> None:
    """Three micro-batches of 4, 4 and 3 samples; layers may look at all samples of one."""
    seen, weights, _ = train(Net(MEANS[name], normalizes=normalizes), 1, 4)
    expected, trained = plain(Net(MEANS[name], normalizes=normalizes), [4 / 11, 4 / 11, 3 / 11])
    torch.testing.assert_close(seen, expected, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(weights, trained, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", SUMS)
def test_a_sum_is_that_of_the_batch(name: str) -> None:
    """The loss of the batch has all of its samples, however they are cut."""
    seen, weights, _ = train(Net(SUMS[name]), 1, 4)
    expected, trained = plain(Net(SUMS[name]), [1.0])
    torch.testing.assert_close(seen, expected, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(weights, trained, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("size", [4, "auto"])
def test_uneven_micro_batches_do_not_depend_on_the_cluster(size: Any) -> None:
    """Losses and weights are bitwise equal for 1 to 3 systems."""
    first, *others = [train(Net(F.mse_loss), num_csx, size) for num_csx in (1, 2, 3)]
    assert all(other[0] == first[0] and other[2] == first[2] for other in others)


@pytest.mark.parametrize("masks", [False, True])
def test_uneven_micro_batches_equal_the_reference_loop(masks: bool) -> None:
    """Bit for bit, on 1 and 4 systems, with equal and unequal labels."""
    flags = [{"ScopedTrainFlags": {"csx.performance.micro_batch_size": 4}}]
    init = init_config(GPT | {"num_hidden_layers": 1}, callbacks=flags)
    source = Masked(masks=masks)
    batches = [source.batch(step) for step in range(2)]
    expected = reference_loop.weights_sha256(reference_loop.train(init, batches, 22))
    for num_csx in (1, 4):
        assert (
            gpt_digest(init, num_csx, 4, source=partial(Masked, masks=masks), steps=2) == expected
        )
