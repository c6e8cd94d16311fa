"""The model of the measurements: equal linear layers, all or none of whose products are sparse."""

from __future__ import annotations

import argparse

import torch
from torch import nn

from waferstream.core.optimizer import OptimizerSpec, ParamGroup
from waferstream.core.sparsity.levels import Constant
from waferstream.core.sparsity.spec import WeightSparsity
from waferstream.reports.benchmark import positive


class Layers(nn.Module):
    """Equal linear layers whose forward pass is its own loss."""

    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """Return the mean squared distance of (B, width) outputs to ``y``."""
        hidden = x.to(next(self.parameters()).dtype)
        for layer in self.layers:
            hidden = torch.relu(layer(hidden))
        return (hidden.float() - y).square().mean()


def update_of(model: Layers, share: float) -> OptimizerSpec:
    """Return AdamW, which keeps a share of zeros in every product."""
    names = tuple(name for name, _ in model.named_parameters())
    hyper = {"lr": 1e-3, "betas": (0.9, 0.999), "eps": 1e-6, "weight_decay": 0.0,
             "correct_bias": True, "amsgrad": False}  # fmt: skip
    sparsity = tuple(
        WeightSparsity(name, "static", level=Constant(value=share))
        for name in names
        if share and name.endswith("weight")
    )
    return OptimizerSpec("AdamW", (ParamGroup(names, hyper),), sparsity=sparsity)


def layer_flags(rows: int) -> argparse.ArgumentParser:
    """Return a parent parser with the flags of the model; ``rows`` are samples of a step."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--width", type=positive, default=1024, help="of the layers")
    parser.add_argument("--depth", type=positive, default=4, help="number of layers")
    parser.add_argument("--rows", type=positive, default=rows, help="samples of a step")
    return parser
