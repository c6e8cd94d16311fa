"""Ten steps of every optimizer on a small perceptron in fp32: losses, weights after every step."""

from __future__ import annotations

from functools import partial
from typing import Any

import cerebras.pytorch as cstorch
import numpy as np
import torch
from harness import Results, arrays_of, formula_tensor, main, network, train

STEPS = 10


class Net(torch.nn.Module):
    """Two linear layers, a norm between them, a mean squared error."""

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(6, 10)
        self.norm = torch.nn.LayerNorm(10)
        self.second = torch.nn.Linear(10, 4)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        hidden = torch.tanh(self.norm(self.first(x)))
        return torch.nn.functional.mse_loss(self.second(hidden), y)


def batches() -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Return the batches of all steps."""
    return [
        (formula_tensor((8, 6), step), formula_tensor((8, 4), step + 0.5)) for step in range(STEPS)
    ]


def results_of(name: str, options: dict[str, Any], device: str) -> Results:
    """Train with one optimizer; return losses and final weights."""
    model, compiled = network(Net, device)
    optimizer = getattr(cstorch.optim, name)(model.parameters(), **options)
    losses = train(compiled, optimizer, batches, STEPS)
    return {"losses": np.array(losses), **arrays_of(model.state_dict(), "weights")}


DECAY = {"weight_decay": 0.1}
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "sgd": ("SGD", {"lr": 0.1}),
    "sgd-momentum": ("SGD", {"lr": 0.1, "momentum": 0.9, "dampening": 0.2, **DECAY}),
    "sgd-nesterov": ("SGD", {"lr": 0.1, "momentum": 0.9, "nesterov": True, **DECAY}),
    "sgd-maximize": ("SGD", {"lr": 0.01, "maximize": True}),
    "adadelta": ("Adadelta", {}),
    "adadelta-options": ("Adadelta", {"lr": 0.5, "rho": 0.8, "maximize": True, **DECAY}),
    "adafactor": ("Adafactor", {"lr": 0.01, "scale_parameter": True, "relative_step": False}),
    "adafactor-plain": (
        "Adafactor",
        {"lr": 0.01, "scale_parameter": False, "relative_step": False},
    ),
    "adafactor-beta": (
        "Adafactor",
        {"lr": 0.01, "beta1": 0.9, "scale_parameter": False, "relative_step": False, **DECAY},
    ),
    "adagrad": ("Adagrad", {"lr": 0.1}),
    "adagrad-options": (
        "Adagrad",
        {"lr": 0.1, "lr_decay": 0.1, "initial_accumulator_value": 0.2, **DECAY},
    ),
    "adam": ("Adam", {"lr": 0.01}),
    "adam-options": ("Adam", {"lr": 0.01, "betas": (0.8, 0.95), "amsgrad": True, **DECAY}),
    "adamw": ("AdamW", {"lr": 0.01, **DECAY}),
    "adamw-uncorrected": ("AdamW", {"lr": 0.01, "correct_bias": False, **DECAY}),
    "adamw-amsgrad": ("AdamW", {"lr": 0.01, "amsgrad": True, **DECAY}),
    "adamax": ("Adamax", {"lr": 0.01}),
    "adamax-options": ("Adamax", {"lr": 0.01, "maximize": True, **DECAY}),
    "asgd": ("ASGD", {"lr": 0.1}),
    "asgd-options": ("ASGD", {"lr": 0.1, "lambd": 0.01, "alpha": 0.6, "t0": 3, **DECAY}),
    "lamb": ("Lamb", {"lr": 0.01, **DECAY}),
    "lamb-plain": ("Lamb", {"lr": 0.01}),
    "lamb-adam": ("Lamb", {"lr": 0.01, "adam": True, **DECAY}),
    "lion": ("Lion", {"lr": 0.01}),
    "lion-decay": ("Lion", {"lr": 0.01, "betas": (0.9, 0.95), **DECAY}),
    "muon": ("Muon", {"lr": 0.02}),
    "muon-plain": ("Muon", {"lr": 0.02, "nesterov": False, "weight_decay": 0.0, "ns_steps": 3}),
    "nadam": ("NAdam", {"lr": 0.01}),
    "nadam-options": ("NAdam", {"lr": 0.01, "momentum_decay": 0.01, **DECAY}),
    "radam": ("RAdam", {"lr": 0.01}),
    "radam-options": ("RAdam", {"lr": 0.01, "betas": (0.8, 0.9), **DECAY}),
    "rmsprop": ("RMSprop", {"lr": 0.01}),
    "rmsprop-momentum": ("RMSprop", {"lr": 0.01, "momentum": 0.9, **DECAY}),
    "rmsprop-centered": ("RMSprop", {"lr": 0.01, "centered": True, "momentum": 0.5}),
    "rprop": ("Rprop", {"lr": 0.01}),
    "rprop-options": ("Rprop", {"lr": 0.1, "etas": (0.3, 1.5), "step_sizes": (1e-3, 0.5)}),
}

if __name__ == "__main__":
    main({name: partial(results_of, *arguments) for name, arguments in CASES.items()})
