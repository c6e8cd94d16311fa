"""Several calls of ``fit`` read the batches that as many plain loops do."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain, islice, repeat
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

import cstorch
from appliance.spec import ClusterSpec, RuntimeSpec
from cstorch import backends

LOCAL = ClusterSpec(runtime=RuntimeSpec(kind="local"))
SEED = 7
Fits = list[tuple[Iterable[Any], int]]


@pytest.fixture(autouse=True)
def plain_precision() -> Iterator[None]:
    """Compute in fp32 on whole batches, as the plain loop does; end the backend."""
    cstorch.amp.enable_mixed_precision(False)
    backends.csx.performance.micro_batch_size = 4
    yield
    backend = cstorch.current_backend(raise_exception=False)
    if backend is not None:
        backend.shutdown()
    backends.reset()


def data() -> TensorDataset:
    x = torch.randn(16, 4, generator=torch.Generator().manual_seed(1))
    return TensorDataset(x, x.sum(dim=1, keepdim=True))


def shuffled() -> Iterable[Any]:
    return DataLoader(data(), batch_size=4, shuffle=True)


def batches(first: int, last: int) -> list[Any]:
    return list(DataLoader(data(), batch_size=4))[first:last]


def layer() -> nn.Linear:
    torch.manual_seed(0)
    return nn.Linear(4, 1)


def trained_plainly(fits: Fits) -> torch.Tensor:
    model = layer()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    torch.manual_seed(SEED)
    for loader, steps in fits:
        for x, y in islice(chain.from_iterable(repeat(loader)), steps):
            optimizer.zero_grad()
            functional.mse_loss(model(x), y).backward()
            optimizer.step()
    return model.weight.detach()


def trained(fits: Fits, device: Any) -> torch.Tensor:
    model = layer()
    steps = {steps for _, steps in fits}
    trainer = cstorch.Trainer(
        model=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        config=cstorch.CSConfig(max_steps=steps.pop(), cluster=LOCAL, target_device=device),
        loss_fn=functional.mse_loss,
    )
    torch.manual_seed(SEED)
    for loader, _ in fits:
        trainer.fit(loader)
    return model.weight.detach()


def of_one(loader: Iterable[Any], steps: int) -> Fits:
    return [(loader, steps)] * 3


@pytest.mark.parametrize("device", ["csx", "cpu"])
@pytest.mark.parametrize("steps", [3, 4, 6])
@pytest.mark.parametrize("kind", ["same list", "other lists", "shuffled"])
def test_weights_are_those_of_plain_loops(kind: str, steps: int, device: str) -> None:
    """A fit begins with the first batch of its loader; of one that shuffles, of a new epoch."""

    def fits() -> Fits:
        if kind == "other lists":
            return [(batches(0, 2), steps), (batches(1, 4), steps), (batches(0, 2), steps)]
        return of_one(shuffled() if kind == "shuffled" else batches(0, 4), steps)

    expected = trained_plainly(fits())
    torch.testing.assert_close(trained(fits(), device), expected, rtol=0, atol=1e-6)
