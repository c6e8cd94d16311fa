"""SGD with momentum, bit for bit ``torch.optim.SGD(fused=True)``."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from memoryx.optim.rule import Hyper, Parameter, Shape


class SGD:
    """g += weight_decay * p; b = momentum * b + (1 - dampening) * g; p -= lr * (b or nesterov).

    The first update sets b to g, undampened (Sutskever et al. 2013 as torch implements it).
    """

    def state_shapes(self, shape: Shape, hyper: Hyper) -> dict[str, Shape]:
        return {"momentum_buffer": shape} if hyper["momentum"] else {}

    def update(self, parameters: Sequence[Parameter], hyper: Hyper, step: int) -> None:
        momentum = hyper["momentum"]
        torch._fused_sgd_(
            [parameter.master for parameter in parameters],
            [parameter.gradient for parameter in parameters],
            [parameter.state["momentum_buffer"] for parameter in parameters] if momentum else [],
            weight_decay=hyper["weight_decay"],
            momentum=momentum,
            lr=hyper["lr"],
            dampening=hyper["dampening"],
            nesterov=hyper["nesterov"],
            maximize=hyper["maximize"],
            is_first_step=bool(momentum) and step == 1,
        )
