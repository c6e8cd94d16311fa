"""Programs in the shape of public lessons run as typed, with the values of plain PyTorch."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from waferstream.cli.main import main

PARTS = """
import json
import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Rows(Dataset):
    def __len__(self):
        return 48

    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(index)
        row = torch.randint(0, 20, (7,), generator=generator)
        return {"input_ids": row[:-1], "labels": row[1:]}


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(20, 8)
        self.hidden = nn.Linear(8, 16)
        self.relu = nn.ReLU()
        self.head = nn.Linear(16, 20)

    def forward(self, input_ids):
        return self.head(self.relu(self.hidden(self.embedding(input_ids))))


def loss_of(logits, labels):
    return nn.functional.cross_entropy(logits.view(-1, 20), labels.view(-1))


def made():
    torch.manual_seed(3)
    return Net()


def loader_of_rows():
    return DataLoader(Rows(), batch_size=8, shuffle=True)
"""

LESSON = """
import cerebras.pytorch as cstorch
from parts import *

model = made()
backend = cstorch.backend("CSX", artifact_dir="artifacts")
cstorch.amp.enable_mixed_precision(False)
compiled_model = cstorch.compile(model, backend)
optimizer = cstorch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9)


@cstorch.step
def train_step(batch):
    loss = loss_of(compiled_model(batch["input_ids"]), batch["labels"])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss


losses = []
loader = loader_of_rows()
for _ in range(2):
    executor = cstorch.utils.data.DataExecutor(loader, num_steps=6, checkpoint_steps=4)
    for step, batch in enumerate(executor):
        loss = train_step(batch)
        losses.append(loss.item())
print(json.dumps(losses))
"""

Run = Callable[[str], Any]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    """Run a program with ``waferstream exec`` on two systems; return what it prints last."""
    (tmp_path / "parts.py").write_text(PARTS)
    (tmp_path / "cluster.yaml").write_text("runtime: {kind: local}\n")
    monkeypatch.chdir(tmp_path)

    def finish(program: str) -> Any:
        (tmp_path / "lesson.py").write_text(program)
        code = main(["exec", "--num_csx=2", "lesson.py"])
        out, err = capfd.readouterr()
        assert code == 0, err
        return json.loads(out.splitlines()[-1])

    return finish


@pytest.fixture
def parts() -> dict[str, Any]:
    """The model, the data and the loss of the lessons, for a plain loop."""
    names: dict[str, Any] = {}
    exec(PARTS, names)
    return names


def plain_losses(parts: dict[str, Any], epochs: int) -> tuple[list[float], nn.Module]:
    """Train in a plain loop; return the losses and the model."""
    model = parts["made"]()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9)
    losses = []
    loader = parts["loader_of_rows"]()
    for _ in range(epochs):
        for batch in loader:
            loss = parts["loss_of"](model(batch["input_ids"]), batch["labels"])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return losses, model


def test_step_and_plain_loader_train_as_a_plain_loop(run: Run, parts: dict[str, Any]) -> None:
    """Shuffled batches in dicts, losses read in the loop, two loops over one loader."""
    expected, _ = plain_losses(parts, epochs=2)
    assert run(LESSON) == pytest.approx(expected, abs=2e-5)
