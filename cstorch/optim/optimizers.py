"""The optimizers, with the vendor's arguments and defaults (cluster_interface.md, section 3.4).

The formulas are in ``memoryx.optim``, in the file of the same rule. ``lr`` may be left out where a
scheduler gives it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch.optim.optimizer import ParamsT as Params

from cstorch.optim.optimizer import (
    Betas,
    Decay,
    LearningRate,
    NonNegative,
    Optimizer,
    Positive,
)
from wsc.core.errors import ConfigError


class SGD(Optimizer):
    """Stochastic gradient descent, with momentum."""

    def __init__(
        self,
        params: Params,
        lr: LearningRate = None,
        momentum: NonNegative = 0.0,
        dampening: float = 0.0,
        weight_decay: NonNegative = 0.0,
        nesterov: bool = False,
        maximize: bool = False,
    ) -> None:
        super().__init__(
            params,
            lr=lr,
            momentum=momentum,
            dampening=dampening,
            weight_decay=weight_decay,
            nesterov=nesterov,
            maximize=maximize,
        )

    def check(self, hyper: Mapping[str, Any], where: str) -> None:
        if hyper["nesterov"] and (hyper["momentum"] == 0 or hyper["dampening"] != 0):
            raise ConfigError(
                "nesterov contradicts momentum or dampening",
                where=where,
                value=f"momentum {hyper['momentum']}, dampening {hyper['dampening']}",
                rule="nesterov needs a momentum and no dampening",
            )


class Adam(Optimizer):
    """Adam; weight decay is added to the gradient."""

    def __init__(
        self,
        params: Params,
        lr: LearningRate = 1e-3,
        betas: Betas = (0.9, 0.999),
        eps: NonNegative = 1e-6,
        weight_decay: NonNegative = 0.0,
        amsgrad: bool = False,
    ) -> None:
        super().__init__(
            params, lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, amsgrad=amsgrad
        )


class AdamW(Optimizer):
    """Adam with decoupled weight decay."""

    def __init__(
        self,
        params: Params,
        lr: LearningRate = 1e-3,
        betas: Betas = (0.9, 0.999),
        eps: NonNegative = 1e-6,
        weight_decay: NonNegative = 0.0,
        correct_bias: bool = True,
        amsgrad: bool = False,
    ) -> None:
        super().__init__(
            params,
            lr=lr,
            betas=betas,
            eps=eps,
            weight_decay=weight_decay,
            correct_bias=correct_bias,
            amsgrad=amsgrad,
        )


class Lion(Optimizer):
    """The sign of an interpolated momentum."""

    def __init__(
        self,
        params: Params,
        lr: LearningRate = 1e-4,
        betas: Betas = (0.9, 0.99),
        weight_decay: NonNegative = 0.0,
    ) -> None:
        super().__init__(params, lr=lr, betas=betas, weight_decay=weight_decay)


class Adafactor(Optimizer):
    """Factored second moments; with ``relative_step`` the rule finds the step length itself."""

    def __init__(
        self,
        params: Params,
        lr: LearningRate = None,
        eps: tuple[NonNegative, NonNegative] = (1e-30, 1e-3),
        clip_threshold: Positive = 1.0,
        decay_rate: float = -0.8,
        beta1: Decay | None = None,
        weight_decay: NonNegative = 0.0,
        scale_parameter: bool = True,
        relative_step: bool = False,
        warmup_init: bool = False,
    ) -> None:
        super().__init__(
            params,
            lr=lr,
            eps=eps,
            clip_threshold=clip_threshold,
            decay_rate=decay_rate,
            beta1=beta1,
            weight_decay=weight_decay,
            scale_parameter=scale_parameter,
            relative_step=relative_step,
            warmup_init=warmup_init,
        )

    def check(self, hyper: Mapping[str, Any], where: str) -> None:
        if hyper["warmup_init"] and not hyper["relative_step"]:
            raise ConfigError("warmup_init needs relative_step", where=where)
        if hyper["relative_step"] and hyper["lr"] is not None:
            raise ConfigError(
                "lr and relative_step exclude each other",
                where=where,
                value=hyper["lr"],
                remedy="leave out lr and its scheduler, or switch off relative_step",
            )

    def _needs_lr(self, hyper: Mapping[str, Any]) -> bool:
        return not hyper["relative_step"]


class Lamb(Optimizer):
    """Adam with a trust ratio per parameter; ``adam`` fixes the ratio to 1."""

    def __init__(
        self,
        params: Params,
        lr: LearningRate = 1e-3,
        betas: Betas = (0.9, 0.999),
        eps: NonNegative = 1e-6,
        weight_decay: NonNegative = 0.0,
        adam: bool = False,
    ) -> None:
        super().__init__(params, lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, adam=adam)
