"""Random numbers that belong to no sample are drawn once for the batch, as plain PyTorch does."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

import cstorch
from cstorch import backends
from tests.support.programs.cstorch_program import executor, loader, losses, running_backend

ROWS, FEATURES = 8, 64
BATCHES = [{"x": torch.rand(ROWS, FEATURES) + 0.5} for _ in range(2)]


class Masked(nn.Module):
    """Means of products with a weight of which a half is dropped."""

    def __init__(self, again: bool) -> None:
        super().__init__()
        self.weight, self.again = nn.Parameter(torch.ones(FEATURES)), again

    def product(self, x: torch.Tensor) -> torch.Tensor:
        return (x * F.dropout(self.weight, 0.5)).sin()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        product = (
            checkpoint(self.product, x, use_reentrant=False) if self.again else self.product(x)
        )
        assert isinstance(product, torch.Tensor)
        return product.mean()


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("size", [1, 3, ROWS])
def test_mask_of_a_weight_is_one_for_the_batch(size: int, again: bool) -> None:
    """A weight that is dropped gets no gradient from any micro-batch."""
    with running_backend() as backend:
        backends.csx.performance.micro_batch_size = size
        model = cstorch.compile(Masked(again), backend)
        optimizer = cstorch.optim.SGD(model.parameters(), lr=0.1)

        @cstorch.trace
        def step(batch: dict[str, torch.Tensor]) -> torch.Tensor:
            loss: torch.Tensor = model(batch["x"])
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            return loss

        losses(step, executor(1, loader(lambda: BATCHES)))
        kept = sum(each != 1.0 for each in model.get_parameter("weight").tolist())
    assert FEATURES * 0.3 < kept < FEATURES * 0.7
