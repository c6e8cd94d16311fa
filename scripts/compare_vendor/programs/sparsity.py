"""Ten steps of every sparsity algorithm on a small network in fp32: losses and final weights.

First masks are the largest weights, since random ones have other places in every environment.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import cerebras.pytorch as cstorch
import numpy as np
import torch
from harness import Results, arrays_of, formula_tensor, main, network, train

STEPS = 10


class Net(torch.nn.Module):
    """Two linear layers and a mean squared error."""

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(12, 20)
        self.second = torch.nn.Linear(20, 8)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        hidden = torch.tanh(self.first(x))
        return torch.nn.functional.mse_loss(self.second(hidden), y)


def batches() -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Return the batches of all steps."""
    return [
        (formula_tensor((8, 12), step), formula_tensor((8, 8), step + 0.5)) for step in range(STEPS)
    ]


def results_of(config: Any, device: str) -> Results:
    """Train with one configuration of sparsity; return losses and final weights."""
    model, compiled = network(Net, device)
    optimizer = cstorch.optim.AdamW(model.parameters(), lr=0.01, weight_decay=0.1)
    sparsity = cstorch.sparse.configure(config)
    model.apply(sparsity)
    optimizer.apply(sparsity)
    losses = train(compiled, optimizer, batches, STEPS)
    names = [name for name, _ in model.named_parameters()]
    weights = {name: tensor for name, tensor in model.state_dict().items() if name in names}
    return {"losses": np.array(losses), **arrays_of(weights, "weights")}


TOPK = {"sparsity": 0.75, "init_method": "topk"}
RIGL = {**TOPK, "algorithm": "rigl", "drop_fraction": 0.5, "update": {"freq": 3, "stop": 8}}

CASES: dict[str, Any] = {
    "static": TOPK,
    "gmp-exponential": {
        "algorithm": "gmp",
        "schedule": {"type": "exp", "init": 0.1, "gamma": -0.3, "final": 0.9},
        "init_method": "topk",
        "update": {"freq": 2},
    },
    "gmp-dense-at-first": {
        "algorithm": "gmp",
        "schedule": {"type": "linear", "init": 0.0, "slope": 0.08},
        "update": {"freq": 2, "start": 3},
    },
    "gmp-cycling": {
        "algorithm": "gmp",
        "schedule": {"type": "cycling", "values": [0.2, 0.4, 0.6]},
        "init_method": "topk",
        "update": {"steps": [0, 2, 5]},
    },
    "rigl": RIGL,
    "rigl-cosine": {
        **RIGL,
        "drop_fraction": {"type": "cosine", "init": 0.5, "half_period": 8},
        "update": {"freq": 2},
    },
    "rigl-balanced": {**RIGL, "balance_out_groups": 4},
    "groups": [
        {**TOPK, "param_filter": "first.*"},
        {**RIGL, "sparsity": 0.5, "param_filter": ["second.weight"]},
    ],
}


if __name__ == "__main__":
    main({name: partial(results_of, config) for name, config in CASES.items()})
