"""A model, a loss and a loader as a user writes them, in a file beside the params file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

SOURCE = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, width=8, dropout=0.0):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, width), nn.Dropout(dropout), nn.Linear(width, 3))

    def forward(self, x):
        return self.body(x)


class NetWithLoss(Net):
    def forward(self, x, target):
        return nn.functional.cross_entropy(super().forward(x), target)


def make_net(width=8):
    return Net(width)


def samples():
    x = torch.arange(128, dtype=torch.float32).view(32, 4).sin()
    return torch.utils.data.TensorDataset(x, x[:, :3].argmax(1))


def pairs(batch_size):
    return torch.utils.data.DataLoader(samples(), batch_size=batch_size, shuffle=True)


def named(batch_size):
    return [{"x": x, "target": target} for x, target in pairs(batch_size)]


def endless(batch_size):
    while True:
        yield from pairs(batch_size)


def wrong_size(batch_size):
    return pairs(2 * batch_size)
"""

CROSS_ENTROPY = {"class": "torch.nn.CrossEntropyLoss"}


def write_program(folder: Path, module: str, trainer: dict[str, Any]) -> list[str]:
    """Write the user's module and a params file; return the flags of a run in one process.

    Every test names a module of its own, since a process imports a name once.
    """
    (folder / f"{module}.py").write_text(SOURCE)
    (folder / "params.yaml").write_text(yaml.safe_dump({"trainer": trainer}))
    (folder / "cluster.yaml").write_text(yaml.safe_dump({"runtime": {"kind": "local"}}))
    return [
        f"--params={folder / 'params.yaml'}",
        f"--cluster={folder / 'cluster.yaml'}",
        f"--model_dir={folder / 'model_dir'}",
    ]


def user_trainer(model: dict[str, Any], data: dict[str, Any], **init: Any) -> dict[str, Any]:
    """Return the ``trainer`` section of a short run in fp32."""
    return {
        "init": {
            "model": model,
            "optimizer": {"SGD": {"lr": 0.5}},
            "precision": {"enabled": False},
            "loop": {"max_steps": 3, "eval_steps": 1},
            **init,
        },
        "fit": {"train_dataloader": data, "val_dataloader": data},
    }
