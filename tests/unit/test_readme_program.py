"""The program of the README, with a model and a data set of the reader's."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from cstorch.current import existing_backend
from tests.support.host.command_blocks import programs

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
