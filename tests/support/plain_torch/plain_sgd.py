"""Plain gradient descent, as a program records it and weight servers apply it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from waferstream.core.optimizer import OptimizerSpec, ParamGroup

SGD = {
    "lr": 0.1,
    "momentum": 0.0,
    "dampening": 0.0,
    "weight_decay": 0.0,
    "nesterov": False,
    "maximize": False,
}
"""All hyperparameters of SGD, optional ones switched off."""


def plain_sgd(names: Iterable[str], lr: float, **limits: Any) -> OptimizerSpec:
    """Return SGD at rate ``lr`` for one group of parameters; ``limits`` clip their gradients."""
    return OptimizerSpec("SGD", (ParamGroup(tuple(names), {**SGD, "lr": lr}),), **limits)
