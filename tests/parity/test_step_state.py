"""Buffers that a step writes have the bits of a plain loop over the micro-batches, in order."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from torch import nn

import cstorch
from cstorch import backends
from tests.support.programs.cstorch_program import executor, loader, running_backend
from tests.support.runs.tiny_training import Shape

ROWS, SIZE, STEPS = 8, 2, 3
Batch = dict[str, torch.Tensor]


class Block(nn.Module):
    """Two convolutions with batch norms and a shortcut, as in a ResNet."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn2 = nn.SyncBatchNorm(channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = torch.relu(self.bn1(self.conv1(x)))
        return torch.relu(x + self.bn2(self.conv2(hidden)))


class Net(nn.Module):
    """A small ResNet that keeps a moving average of its features."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.stem = nn.Conv2d(3, 4, 3)
        self.norm = nn.InstanceNorm2d(4, track_running_stats=True)
        self.blocks = nn.Sequential(Block(4), Block(4))
        self.head = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4, affine=False))
        self.average: torch.Tensor
        self.register_buffer("average", torch.zeros(4))

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        features = self.blocks(self.norm(self.stem(x))).mean((2, 3))
        if self.training:
            self.average = self.average * 0.9 + features.detach().mean(0) * 0.1
        scores = self.head(features)
        return nn.functional.cross_entropy(scores, y), scores


def batches() -> list[Batch]:
    generator = torch.Generator().manual_seed(1)
    return [
        {
            "x": torch.randn(ROWS, 3, 6, 6, generator=generator),
            "y": torch.randint(0, 4, (ROWS,), generator=generator),
        }
        for _ in range(STEPS)
    ]


def parts(batch: Batch) -> list[Batch]:
    return [{name: t[i : i + SIZE] for name, t in batch.items()} for i in range(0, ROWS, SIZE)]


class Outcome(NamedTuple):
    before: torch.Tensor  # scores of the first batch in evaluation, before training
    after: torch.Tensor
    state: dict[str, torch.Tensor]


@pytest.fixture(scope="module")
def expected() -> Outcome:
    """The outcome of the plain loop; four gradients are added as the cluster adds them."""
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def scores() -> torch.Tensor:
        model.eval()
        with torch.no_grad():
            found = torch.cat([model(**part)[1] for part in parts(batches()[0])])
        model.train()
        return found

    before = scores()
    for batch in batches():
        gradients = []
        for part in parts(batch):
            loss = model(**part)[0] / (ROWS // SIZE)
            gradients.append(torch.autograd.grad(loss, list(model.parameters())))
        for parameter, (a, b, c, d) in zip(
            model.parameters(), zip(*gradients, strict=True), strict=True
        ):
            parameter.grad = (a + b) + (c + d)
        optimizer.step()
    return Outcome(before, scores(), model.state_dict())


def train(num_csx: int, path: Path, resume_from: Path | None = None) -> Outcome:
    """Train on a cluster; with a checkpoint after two steps, or from that checkpoint on."""
    backends.csx.performance.micro_batch_size = SIZE
    seen: list[torch.Tensor] = []
    with running_backend(Shape(num_csx)) as backend:
        model = Net()
        compiled = cstorch.compile(model, backend)
        optimizer = cstorch.optim.SGD(model.parameters(), lr=0.1)
        if resume_from is not None:
            backend.restore(resume_from)
        data = loader(batches)

        @cstorch.trace
        def training_step(batch: Batch) -> None:
            optimizer.zero_grad()
            compiled(**batch)[0].backward()
            optimizer.step()

        @cstorch.trace
        def evaluation_step(batch: Batch) -> torch.Tensor:
            scores: torch.Tensor = compiled(**batch)[1]
            return scores

        @cstorch.checkpoint_closure
        def save() -> None:
            cstorch.save({"model": model.state_dict(), "global_step": backend.global_step}, path)

        def evaluate() -> None:
            model.eval()
            seen.extend(evaluation_step(batch).cpu() for batch in executor(1, data))
            model.train()

        evaluate()
        for batch in executor(STEPS - backend.global_step, data, checkpoint_steps=[2]):
            training_step(batch)
            save()
        evaluate()
        state = {name: value.clone() for name, value in model.state_dict().items()}
    before, after = seen
    return Outcome(before, after, state)


@pytest.mark.parametrize("num_csx", [1, 3])
def test_buffers_equal_the_plain_loop(num_csx: int, expected: Outcome, tmp_path: Path) -> None:
    """Before and after training, in ``state_dict()``, and when a checkpoint is resumed."""
    path = tmp_path / "two_steps.mdl"
    found = train(num_csx, path)
    assert torch.equal(found.before, expected.before)
    assert torch.equal(found.after, expected.after)
    assert found.state.keys() == expected.state.keys()
    for name, value in expected.state.items():
        assert torch.equal(found.state[name], value), name
    if num_csx == 3:
        resumed = train(2, tmp_path / "other.mdl", resume_from=path)
        assert torch.equal(resumed.after, expected.after)
        assert all(torch.equal(resumed.state[name], v) for name, v in expected.state.items())
