"""SGD, Adam and AdamW, on the kernels of torch's optimizers of the same names with ``fused=True``.

Arguments, defaults and rules are the vendor's (cerebras_pytorch 2.10, ``optim``). They are
torch's as well, but for the dampening of SGD's first step and the place of Adam's ``eps``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from memoryx.optim.lazy_torch import torch
from memoryx.optim.rule import (
    AdamArguments,
    Hyper,
    LearningRate,
    NonNegative,
    Parameter,
    Rule,
    Shape,
    register,
)
from waferstream.core.config import Config
from waferstream.core.errors import ConfigError


@register
class SGD(Rule):
    """Stochastic gradient descent, with momentum.

    g += weight_decay * p; b = momentum * b + (1 - dampening) * g; p -= lr * (b or nesterov).

    b begins at zero, so the first gradient is dampened like all others; torch sets b to it.
    """

    flops_per_element = 7
    is_elementwise = True
    counts_updates = False

    class Arguments(Config):
        """Hyper-parameters."""

        lr: LearningRate = None
        momentum: NonNegative = 0.0
        dampening: float = 0.0
        weight_decay: NonNegative = 0.0
        nesterov: bool = False
        maximize: bool = False

    def check(self, hyper: Hyper, where: str) -> None:
        if hyper["nesterov"] and (hyper["momentum"] == 0 or hyper["dampening"] != 0):
            raise ConfigError(
                "nesterov contradicts momentum or dampening",
                code="nesterov-without-momentum",
                where=where,
                value=f"momentum {hyper['momentum']}, dampening {hyper['dampening']}",
                rule="nesterov needs a momentum and no dampening",
            )

    def state_shapes(self, shape: Shape, hyper: Hyper) -> dict[str, Shape]:
        return {"momentum_buffer": shape} if hyper["momentum"] else {}

    def update(self, parameters: Sequence[Parameter], hyper: Hyper, step: int) -> None:  # noqa: ARG002
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
            is_first_step=False,
        )


@register
class Adam(Rule):
    """Adam; weight decay is added to the gradient.

    Kingma and Ba 2015, arXiv:1412.6980, in the form at the end of section 2: ``eps`` is added to
    the root of the uncorrected second moment. With ``eps_after_correction`` it is added to that of
    the corrected one, as in algorithm 1 and in torch. ``amsgrad`` divides by the largest second
    moment so far (Reddi et al. 2018, algorithm 2).
    """

    flops_per_element = 15
    is_elementwise = True

    class Arguments(AdamArguments):
        """Hyper-parameters."""

        amsgrad: bool = False
        eps_after_correction: bool = False

    def state_shapes(self, shape: Shape, hyper: Hyper) -> dict[str, Shape]:
        names = ["exp_avg", "exp_avg_sq"] + ["max_exp_avg_sq"] * hyper["amsgrad"]
        return dict.fromkeys(names, shape)

    def update(self, parameters: Sequence[Parameter], hyper: Hyper, step: int) -> None:
        _fused_adam(torch._fused_adam_, parameters, hyper, step)


@register
class AdamW(Adam):
    """Adam with decoupled weight decay, which shrinks the master instead.

    Loshchilov and Hutter 2019, arXiv:1711.05101. Without ``correct_bias`` the moments are used
    uncorrected.
    """

    class Arguments(AdamArguments):
        """Hyper-parameters."""

        correct_bias: bool = True
        amsgrad: bool = False
        eps_after_correction: bool = False

    def update(self, parameters: Sequence[Parameter], hyper: Hyper, step: int) -> None:
        # The kernel divides by 1 - beta ** step, which is exactly 1 at an infinite step.
        bias_step = step if hyper["correct_bias"] else math.inf
        _fused_adam(torch._fused_adamw_, parameters, hyper, bias_step)


def _fused_adam(
    kernel: Callable[..., None], parameters: Sequence[Parameter], hyper: Hyper, step: float
) -> None:
    beta1, beta2 = hyper["betas"]
    amsgrad = hyper["amsgrad"]
    eps = hyper["eps"]
    if not hyper.get("eps_after_correction"):
        # The kernel adds eps after dividing by this root; sqrt(v) + eps is what remains.
        eps /= math.sqrt(1.0 - beta2**step)
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
        eps=eps,
        amsgrad=amsgrad,
        maximize=False,
    )
