"""Programs of the README and of the tutorials, with models and data of the reader's."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning
import torch
from torch.utils.data import DataLoader, TensorDataset

from cstorch.current import existing_backend
from swarmx.topology import topology_of
from tests.support.host.command_blocks import programs
from tests.support.programs.ended import ended_backend
from waferstream.machine.hardware import SwarmXSpec

MINE = """
import torch
from torch.utils.data import Dataset


class MyModel(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.table = torch.nn.Embedding(8, 8)

    def forward(self, idx, targets):
        logits = self.table(idx)
        return logits, torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


class MyDataset(Dataset):
    def __len__(self):
        return 32

    def __getitem__(self, index):
        row = (index + torch.arange(5)) % 8
        return row[:-1], row[1:]
"""


def test_program_of_the_readme_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It trains, then simulates, on the machine of the working folder."""
    (tmp_path / "mine.py").write_text(MINE)
    (tmp_path / "cluster.yaml").write_text("runtime: {kind: local}\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    program = programs("README.md")[0]
    names: dict[str, object] = {}
    try:
        exec(program, names)
    finally:
        backend = existing_backend()
        if backend is not None:
            backend.shutdown()
        sys.modules.pop("mine", None)
    losses = names["losses"]
    assert isinstance(losses, list)
    assert len(losses) == 10
    assert losses[-1] < losses[0]
    assert "MyModel, 64 parameters, batch of 16 sequences of 4, on CS-2" in capsys.readouterr().out


class Line(pytorch_lightning.LightningModule):  # type: ignore[misc]  # checked without it
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def training_step(self, batch: list[torch.Tensor]) -> torch.Tensor:
        x, y = batch
        return torch.nn.functional.mse_loss(self.layer(x), y)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # what Lightning recommends
def test_lightning_program_of_the_readme_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cluster.yaml").write_text("runtime: {kind: local}\n")
    monkeypatch.chdir(tmp_path)
    module = Line()
    before = module.layer.weight.detach().clone()
    data: Any = TensorDataset(torch.ones(16, 4), torch.ones(16, 1))
    names = {
        "pytorch_lightning": pytorch_lightning,
        "lightning_module": module,
        "loader": DataLoader(data, batch_size=8),
    }
    with ended_backend():
        exec(programs("README.md")[2], names)
    assert not torch.equal(module.layer.weight, before)


def test_topology_of_the_tutorial_is_the_one_of_the_examples(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (program,) = programs("docs/tutorials/own_topology.md")
    names: dict[str, Any] = {}
    exec(program, names)
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2]))
    spec = SwarmXSpec(topology="examples.extensions:Ring")
    own, known = names["Ring"](16, spec), topology_of(spec, 16)
    assert (own.depth, own.num_switches) == (known.depth, known.num_switches) == (8, 16)
