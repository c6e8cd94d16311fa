"""A model trained by ``cstorch.Trainer``, and its twin trained by a plain loop on whole batches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional

import cstorch
from appliance.spec import ClusterSpec, RuntimeSpec

LOCAL = ClusterSpec(runtime=RuntimeSpec(kind="local"))
CLASSES = 5
Optimize = Callable[[nn.Module], torch.optim.Optimizer]


def batch() -> tuple[torch.Tensor, torch.Tensor]:
    """Return 16 samples, which are several micro-batches."""
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(16, 4, generator=generator)
    return x, torch.randint(CLASSES, (16,), generator=generator)


class Net(nn.Module):
    """Two layers, large enough that a step changes every weight."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = nn.Linear(4, 8), nn.Linear(8, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.second(torch.tanh(self.first(x)))
        return scores


def sgd(model: nn.Module, **options: Any) -> torch.optim.Optimizer:
    """Return SGD over all parameters."""
    return torch.optim.SGD(model.parameters(), **{"lr": 0.5, **options})


def plain(model: nn.Module, optimizer: torch.optim.Optimizer, steps: int = 3) -> list[float]:
    """Train by a plain loop; return the losses."""
    x, labels = batch()
    seen = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = functional.cross_entropy(model(x), labels)
        loss.backward()
        optimizer.step()
        seen.append(loss.item())
    return seen


def trained(model: nn.Module, optimizer: torch.optim.Optimizer, steps: int = 3) -> list[float]:
    """Train by ``cstorch.Trainer``; return the losses."""
    config = cstorch.CSConfig(num_csx=2, max_steps=steps, cluster=LOCAL)
    trainer = cstorch.Trainer(
        model=model, optimizer=optimizer, config=config, loss_fn=functional.cross_entropy
    )
    seen = trainer.fit([batch()])
    trainer.shutdown()
    return seen


def assert_same_weights(model: nn.Module, twin: nn.Module, tolerance: float = 2e-6) -> None:
    """Compare all parameters and buffers of two models."""
    expected = twin.state_dict()
    for name, value in model.state_dict().items():
        torch.testing.assert_close(
            value.detach().clone(), expected[name], rtol=0, atol=tolerance, msg=name
        )


def assert_like_plain(make: Callable[[], nn.Module], optimize: Optimize = sgd) -> None:
    """Train two models that ``make`` returns, both ways, and compare losses and weights."""
    twin, model = make(), make()
    expected = plain(twin, optimize(twin))
    found = trained(model, optimize(model))
    torch.testing.assert_close(found, expected, rtol=0, atol=2e-6)
    assert_same_weights(model, twin)
