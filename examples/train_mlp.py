"""Train a small network by hand: backend, compile, trace, loop.

python examples/train_mlp.py --num_csx 4 --steps 100
"""

from __future__ import annotations

import argparse
from typing import Any

import torch
from torch import nn
from torch.nn.functional import cross_entropy

import cstorch

ARMS = 3


class SpiralNet(nn.Module):
    """A network that classifies points by the arm of a spiral."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(2, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, ARMS)
        )

    def forward(self, points: torch.Tensor, arms: torch.Tensor) -> torch.Tensor:
        """Return the loss of a batch."""
        return cross_entropy(self.layers(points), arms)


def spiral(batch_size: int = 96, batches: int = 100) -> list[dict[str, torch.Tensor]]:
    """Return batches of points on a spiral; input workers call this."""
    generator = torch.Generator().manual_seed(0)
    found = []
    for _ in range(batches):
        arms = torch.randint(ARMS, (batch_size,), generator=generator)
        radius = torch.rand(batch_size, generator=generator)
        noise = 0.1 * torch.randn(batch_size, generator=generator)
        angle = 4 * radius + arms * 2 * torch.pi / ARMS + noise
        points = torch.stack([radius * angle.cos(), radius * angle.sin()], dim=1)
        found.append({"points": points, "arms": arms})
    return found


def train(num_csx: int, steps: int) -> list[float]:
    """Train on an emulated cluster; return the loss of every step."""
    # Every role in this process. Leave `cluster` out to run each role as a process of its own.
    cluster: Any = {"runtime": {"kind": "local"}}
    config = cstorch.ClusterConfig(num_csx=num_csx, cluster=cluster)
    backend = cstorch.backend("CSX", cluster_config=config)
    cstorch.amp.enable_mixed_precision(False)  # fp32: such a small network gains nothing
    torch.manual_seed(0)
    with backend.device:
        model = SpiralNet()
    compiled = cstorch.compile(model, backend)
    optimizer = cstorch.optim.AdamW(model.parameters(), lr=0.01)
    losses: list[float] = []

    @cstorch.trace  # recorded, then run by the cluster
    def training_step(batch: dict[str, torch.Tensor]) -> torch.Tensor:
        loss: torch.Tensor = compiled(**batch)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    @cstorch.step_closure  # runs after the step, when the loss has a value
    def note(loss: torch.Tensor, step: int) -> None:
        losses.append(loss.item())
        if step % 10 == 0:
            print(f"step {step:4}  loss {losses[-1]:.4f}")

    loader = cstorch.utils.data.DataLoader(spiral)
    executor = cstorch.utils.data.DataExecutor(loader, num_steps=steps, activation_steps=10)
    for step, batch in enumerate(executor, start=1):
        note(training_step(batch), step)
    backend.shutdown()
    return losses


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--num_csx", type=int, default=4, help="CS systems")
    parser.add_argument("--steps", type=int, default=100)
    given = parser.parse_args()
    train(given.num_csx, given.steps)
