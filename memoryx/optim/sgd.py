"""SGD with momentum, bit for bit ``torch.optim.SGD(fused=True)``."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from memoryx.optim.rule import Hyper, Shape, State


class SGD:
    """g += weight_decay * p; b = momentum * b + (1 - dampening) * g; p -= lr * (b or nesterov).

    The first update sets b to g, undampened (Sutskever et al. 2013 as torch implements it).
    """

    def state_shapes(self, shape: Shape, hyper: Hyper) -> dict[str, Shape]:
        return {"momentum_buffer": shape} if hyper["momentum"] else {}

    def update(
        self,
        masters: Sequence[Tensor],
        gradients: Sequence[Tensor],
        states: Sequence[State],
        hyper: Hyper,
        step: int,
    ) -> None:
        momentum = hyper["momentum"]
        torch._fused_sgd_(
            list(masters),
            list(gradients),
            [state["momentum_buffer"] for state in states] if momentum else [],
            weight_decay=hyper["weight_decay"],
            momentum=momentum,
            lr=hyper["lr"],
            dampening=hyper["dampening"],
            nesterov=hyper["nesterov"],
            maximize=hyper["maximize"],
            is_first_step=bool(momentum) and step == 1,
        )
