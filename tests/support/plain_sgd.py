"""Plain gradient descent, as a program records it and weight servers apply it."""

from __future__ import annotations

from collections.abc import Iterable

from wsc.core.optimizer import OptimizerSpec, ParamGroup

SGD = {
    "lr": 0.1,
    "momentum": 0.0,
    "dampening": 0.0,
    "weight_decay": 0.0,
    "nesterov": False,
    "maximize": False,
}
"""All hyperparameters of SGD, those switched off that can be."""


def plain_sgd(names: Iterable[str], lr: float, **limits: float) -> OptimizerSpec:
    """One group of parameters that learn at rate ``lr``; ``limits`` clip their gradients."""
    return OptimizerSpec("SGD", (ParamGroup(tuple(names), {**SGD, "lr": lr}),), **limits)
