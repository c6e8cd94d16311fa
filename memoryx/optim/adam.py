"""Adam and AdamW, bit for bit ``torch.optim.Adam(fused=True)`` and ``AdamW(fused=True)``."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch

from memoryx.optim.rule import Hyper, Parameter, Shape


class Adam:
    """Kingma and Ba 2015, arXiv:1412.6980, algorithm 1; weight decay is added to the gradient.

    ``amsgrad`` divides by the largest second moment so far (Reddi et al. 2018, algorithm 2).
    """

    def state_shapes(self, shape: Shape, hyper: Hyper) -> dict[str, Shape]:
        names = ["exp_avg", "exp_avg_sq"] + ["max_exp_avg_sq"] * hyper["amsgrad"]
        return dict.fromkeys(names, shape)

    def update(self, parameters: Sequence[Parameter], hyper: Hyper, step: int) -> None:
        _fused(torch._fused_adam_, parameters, hyper, step)


class AdamW(Adam):
    """Loshchilov and Hutter 2019, arXiv:1711.05101: weight decay shrinks the master instead.

    Without ``correct_bias`` the moments are used as they are.
    """

    def update(self, parameters: Sequence[Parameter], hyper: Hyper, step: int) -> None:
        # The kernel divides by 1 - beta ** step, which is exactly 1 at an infinite step.
        bias_step = step if hyper["correct_bias"] else math.inf
        _fused(torch._fused_adamw_, parameters, hyper, bias_step)


def _fused(
    kernel: Callable[..., None], parameters: Sequence[Parameter], hyper: Hyper, step: float
) -> None:
    beta1, beta2 = hyper["betas"]
    amsgrad = hyper["amsgrad"]
    kernel(
        [parameter.master for parameter in parameters],
        [parameter.gradient for parameter in parameters],
        [parameter.state["exp_avg"] for parameter in parameters],
        [parameter.state["exp_avg_sq"] for parameter in parameters],
        [parameter.state["max_exp_avg_sq"] for parameter in parameters] if amsgrad else [],
        [torch.tensor(float(step))] * len(parameters),
        lr=hyper["lr"],
        beta1=beta1,
        beta2=beta2,
        weight_decay=hyper["weight_decay"],
        eps=hyper["eps"],
        amsgrad=amsgrad,
        maximize=False,
    )
