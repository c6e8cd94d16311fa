"""Lion: the sign of an interpolated momentum."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from memoryx.optim.rule import Hyper, Parameter, Shape


class Lion:
    """Chen et al. 2023, arXiv:2302.06675, algorithm 2.

    p -= lr * (sign(beta1 m + (1 - beta1) g) + weight_decay * p); m = beta2 m + (1 - beta2) g.
    """

    def state_shapes(self, shape: Shape, hyper: Hyper) -> dict[str, Shape]:  # noqa: ARG002
        return {"exp_avg": shape}

    def update(self, parameters: Sequence[Parameter], hyper: Hyper, step: int) -> None:  # noqa: ARG002
        lr, decay = hyper["lr"], hyper["weight_decay"]
        beta1, beta2 = hyper["betas"]
        for master, gradient, state in parameters:
            momentum = state["exp_avg"]
            direction = torch.lerp(momentum, gradient, 1.0 - beta1).sign_()
            master.mul_(1.0 - lr * decay).add_(direction, alpha=-lr)
            momentum.lerp_(gradient, 1.0 - beta2)
