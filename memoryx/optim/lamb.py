"""LAMB: Adam's direction with a step length in proportion to the parameter's norm."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from memoryx.optim.rule import Hyper, Parameter, Shape, State


class Lamb:
    """You et al. 2020, arXiv:1904.00962, algorithm 2, with the identity as scaling function.

    ``adam`` fixes the trust ratio to 1, which leaves AdamW.
    """

    def state_shapes(self, shape: Shape, hyper: Hyper) -> dict[str, Shape]:  # noqa: ARG002
        return {"exp_avg": shape, "exp_avg_sq": shape}

    def update(self, parameters: Sequence[Parameter], hyper: Hyper, step: int) -> None:
        for master, gradient, state in parameters:
            direction = _adam_direction(gradient, state, hyper, step)
            direction.add_(master, alpha=hyper["weight_decay"])
            ratio = 1.0 if hyper["adam"] else _trust_ratio(master, direction)
            master.add_(direction, alpha=-hyper["lr"] * ratio)


def _adam_direction(gradient: Tensor, state: State, hyper: Hyper, step: int) -> Tensor:
    """Bias-corrected first moment over the root of the second; updates both moments."""
    beta1, beta2 = hyper["betas"]
    first = state["exp_avg"].lerp_(gradient, 1.0 - beta1)
    second = state["exp_avg_sq"].mul_(beta2).addcmul_(gradient, gradient, value=1.0 - beta2)
    root = second.div(1.0 - beta2**step).sqrt_().add_(hyper["eps"])
    return first.div(1.0 - beta1**step).div_(root)


def _trust_ratio(master: Tensor, direction: Tensor) -> float:
    """Norm of the parameter over norm of its direction; 1 where either vanishes."""
    master_norm = float(torch.linalg.vector_norm(master))
    direction_norm = float(torch.linalg.vector_norm(direction))
    return master_norm / direction_norm if master_norm and direction_norm else 1.0
