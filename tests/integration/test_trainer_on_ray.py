"""``cstorch.Trainer`` on Ray: what is left of a fit that fails."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional

import cstorch
from cstorch import backends
from tests.support.errors import raises
from waferstream.core.errors import ApplianceRuntimeServerError


class BreaksAtThird:
    """A loader whose third batch cannot be read."""

    def batch(self, step: int) -> tuple[torch.Tensor, torch.Tensor]:
        if step == 2:
            raise OSError("no disk")
        x = torch.randn(8, 4, generator=torch.Generator().manual_seed(step))
        return x, x.sum(dim=1, keepdim=True)


def test_model_has_the_weights_of_the_steps_before_a_failure() -> None:
    """They are fetched from the weight servers, which outlive the failed worker for a moment."""
    cstorch.amp.enable_mixed_precision(False)
    backends.csx.performance.micro_batch_size = 4
    model, plain = nn.Linear(4, 1), nn.Linear(4, 1)
    loader: Any = BreaksAtThird
    plain.load_state_dict(model.state_dict())
    try:
        trainer = cstorch.Trainer(
            model=model,
            optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
            config=cstorch.CSConfig(num_csx=2, max_steps=4),
            loss_fn=functional.mse_loss,
        )
        with raises(ApplianceRuntimeServerError, "role-failed"):
            trainer.fit(loader)
    finally:
        backends.reset()
    optimizer = torch.optim.SGD(plain.parameters(), lr=0.1)
    for step in range(2):
        optimizer.zero_grad()
        x, y = BreaksAtThird().batch(step)
        functional.mse_loss(plain(x), y).backward()
        optimizer.step()
    torch.testing.assert_close(model.weight, plain.weight, rtol=0, atol=1e-6)
