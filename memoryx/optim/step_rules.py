"""ASGD and Rprop, bit for bit torch's of the same names.

The reference is torch's implementation for one tensor at a time, its default on a CPU. Arguments
and defaults are the vendor's (cerebras_pytorch 2.10, ``optim``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import numpy as np
from pydantic import Field

from memoryx.optim.adaptive_rules import decayed
from memoryx.optim.lazy_torch import torch
from memoryx.optim.rule import (
    Hyper,
    LearningRate,
    NonNegative,
    Parameter,
    Positive,
    Rule,
    Shape,
    register,
)
from waferstream.core.config import Config
from waferstream.core.errors import ConfigError


@register
class ASGD(Rule):
    """Stochastic gradient descent that also keeps the average of the parameters.

    Polyak and Juditsky 1992, SIAM J. Control Optim. 30(4). The step length of step t is
    lr / (1 + lambd lr (t - 1)) ^ alpha; from step ``t0`` on, ``ax`` averages the parameters.
    """

    flops_per_element = 8
    is_elementwise = True
    derived_states = ("eta", "mu")

    class Arguments(Config):
        """Hyper-parameters."""

        lr: LearningRate = 1e-2
        lambd: NonNegative = 1e-4
        alpha: NonNegative = 0.75
        t0: NonNegative = 1e6
        weight_decay: NonNegative = 0.0
        maximize: bool = False

    def state_shapes(self, shape: Shape, hyper: Hyper) -> dict[str, Shape]:  # noqa: ARG002
        return {"ax": shape}

    def derived_value(self, state: str, hyper: Hyper, updates: int) -> float:
        if state == "mu":
            return float(np.float32(1 / max(1, updates - hyper["t0"])))
        lr, lambd = hyper["lr"], hyper["lambd"]
        return float(np.float32(lr / (1 + lambd * lr * updates) ** hyper["alpha"]))

    def update(self, parameters: Sequence[Parameter], hyper: Hyper, step: int) -> None:
        lambd = hyper["lambd"]
        # torch keeps both numbers as fp32 tensors, written at the end of the step before.
        length, weight = (self.derived_value(state, hyper, step - 1) for state in ("eta", "mu"))
        for master, gradient, state in decayed(parameters, hyper):
            master.mul_(1 - lambd * length).add_(gradient, alpha=-length)
            average = state["ax"]
            if weight == 1:
                average.copy_(master)
            else:
                average.add_(master.sub(average).mul_(weight))


Shrink = Annotated[float, Field(gt=0, lt=1)]
Grow = Annotated[float, Field(gt=1)]


@register
class Rprop(Rule):
    """A step length per element, which grows while the gradient keeps its sign.

    Riedmiller and Braun 1993, IEEE ICNN, section II. ``etas`` are the factors after a change of
    sign and without one; ``lr`` is the first step length. A gradient that has changed its sign is
    skipped for one step.
    """

    flops_per_element = 8
    is_elementwise = True

    class Arguments(Config):
        """Hyper-parameters."""

        lr: LearningRate = 1e-3
        etas: tuple[Shrink, Grow] = (0.5, 1.2)
        step_sizes: tuple[Positive, Positive] = (1e-6, 50.0)

    def check(self, hyper: Hyper, where: str) -> None:
        shortest, longest = hyper["step_sizes"]
        if shortest > longest:
            raise ConfigError(
                "the smallest step size must not exceed the largest",
                code="step-sizes-not-ordered",
                where=where,
                value=hyper["step_sizes"],
            )

    def state_shapes(self, shape: Shape, hyper: Hyper) -> dict[str, Shape]:  # noqa: ARG002
        return {"prev": shape, "step_size": shape}

    def initial_value(self, state: str, hyper: Hyper) -> float:
        return float(hyper["lr"]) if state == "step_size" else 0.0

    def update(self, parameters: Sequence[Parameter], hyper: Hyper, step: int) -> None:  # noqa: ARG002
        shrink, grow = hyper["etas"]
        shortest, longest = hyper["step_sizes"]
        for master, gradient, state in parameters:
            agreement = gradient * state["prev"]
            factor = torch.ones_like(agreement)
            factor[agreement > 0] = grow
            factor[agreement < 0] = shrink
            length = state["step_size"].mul_(factor).clamp_(shortest, longest)
            kept = torch.where(agreement < 0, 0.0, gradient)
            master.addcmul_(kept.sign(), length, value=-1)
            state["prev"].copy_(kept)
