"""Lion, Adafactor, LAMB and Muon, written in torch operations after their papers.

Muon is momentum, orthogonalised by Newton-Schulz iterations in bfloat16; for matrices it is bit for
bit ``torch.optim.Muon``. Arguments and defaults are the vendor's (cerebras_pytorch 2.10,
``optim``).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod, sqrt
from typing import TYPE_CHECKING

from pydantic import NonNegativeInt

from memoryx.optim.lazy_torch import torch
from memoryx.optim.rule import (
    AdamArguments,
    Betas,
    Decay,
    Hyper,
    LearningRate,
    NonNegative,
    Parameter,
    Positive,
    Rule,
    Shape,
    State,
    register,
)
from waferstream.core.config import Config
from waferstream.core.errors import ConfigError

if TYPE_CHECKING:
    from torch import Tensor


LARGEST_LAMB_NORM = 10.0
"""Upper bound of the scaling function (You et al. 2020, section 3) as the vendor sets it."""

COEFFICIENTS = (3.4445, -4.7750, 2.0315)
"""Of the quintic iteration a X + b (X X^T) X + c (X X^T)^2 X (Jordan et al. 2024)."""

SMALLEST_NORM = 1e-7
"""Bound of the divisor below, so that a gradient of zeros stays zero (Jordan et al. 2024)."""


@register
class Lion(Rule):
    """The sign of an interpolated momentum.

    Chen et al. 2023, arXiv:2302.06675, algorithm 2.

    p -= lr * (sign(beta1 m + (1 - beta1) g) + weight_decay * p); m = beta2 m + (1 - beta2) g.
    """

    flops_per_element = 9
    is_elementwise = True

    class Arguments(Config):
        """Hyper-parameters."""

        lr: LearningRate = 1e-4
        betas: Betas = (0.9, 0.99)
        weight_decay: NonNegative = 0.0

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


@register
class Adafactor(Rule):
    """Factored second moments: those of a matrix are kept as one row and one column.

    Shazeer and Stern 2018, arXiv:1804.04235, algorithms 4 (matrices), 5 (vectors) and 6. A tensor
    of more than two dimensions is factored over its last two. The code has means where the paper
    has sums, which is the same after normalisation. ``weight_decay`` shrinks the master by the
    step length of the update; ``beta1`` (None: off) averages the updates; with ``relative_step``
    the rule chooses the step length itself.
    """

    flops_per_element = 17

    class Arguments(Config):
        """Hyper-parameters."""

        lr: LearningRate = None
        eps: tuple[NonNegative, NonNegative] = (1e-30, 1e-3)
        clip_threshold: Positive = 1.0
        decay_rate: float = -0.8
        beta1: Decay | None = None
        weight_decay: NonNegative = 0.0
        scale_parameter: bool = True
        relative_step: bool = False
        warmup_init: bool = False

    def check(self, hyper: Hyper, where: str) -> None:
        if hyper["warmup_init"] and not hyper["relative_step"]:
            raise ConfigError(
                "warmup_init needs relative_step", code="warmup-without-relative-step", where=where
            )
        if hyper["relative_step"] and hyper["lr"] is not None:
            raise ConfigError(
                "lr and relative_step exclude each other",
                code="lr-with-relative-step",
                where=where,
                value=hyper["lr"],
                remedy="leave out lr and its scheduler, or switch off relative_step",
            )

    def needs_lr(self, hyper: Hyper) -> bool:
        return not hyper["relative_step"]

    def state_shapes(self, shape: Shape, hyper: Hyper) -> dict[str, Shape]:
        shapes: dict[str, Shape] = {}
        if hyper["beta1"] is not None:
            shapes["exp_avg"] = shape
        if len(shape) >= 2:
            shapes["exp_avg_sq_row"] = shape[:-1]
            shapes["exp_avg_sq_col"] = (*shape[:-2], shape[-1])
        else:
            shapes["exp_avg_sq"] = shape
        return shapes

    def update(self, parameters: Sequence[Parameter], hyper: Hyper, step: int) -> None:
        relative_length = _relative_length(hyper, step)
        for master, gradient, state in parameters:
            length = relative_length
            if hyper["scale_parameter"]:
                length *= max(hyper["eps"][1], _root_mean_square(master))
            change = _normalised(gradient, state, hyper, step)
            change.mul_(length / max(1.0, _root_mean_square(change) / hyper["clip_threshold"]))
            if hyper["beta1"] is not None:
                change = state["exp_avg"].lerp_(change, 1.0 - hyper["beta1"])
            master.mul_(1.0 - hyper["weight_decay"] * length).sub_(change)


@register
class Lamb(Rule):
    """Adam with a step length in proportion to the parameter's norm.

    You et al. 2020, arXiv:1904.00962, algorithm 2 with phi(z) = min(z, 10). As the vendor does, the
    moments are used uncorrected. ``adam`` fixes the trust ratio to 1, which leaves AdamW without
    ``correct_bias``.
    """

    flops_per_element = 21

    class Arguments(AdamArguments):
        """Hyper-parameters."""

        adam: bool = False

    def state_shapes(self, shape: Shape, hyper: Hyper) -> dict[str, Shape]:  # noqa: ARG002
        return {"exp_avg": shape, "exp_avg_sq": shape}

    def update(self, parameters: Sequence[Parameter], hyper: Hyper, step: int) -> None:  # noqa: ARG002
        beta1, beta2 = hyper["betas"]
        for master, gradient, state in parameters:
            first = state["exp_avg"].lerp_(gradient, 1.0 - beta1)
            second = state["exp_avg_sq"].mul_(beta2).addcmul_(gradient, gradient, value=1.0 - beta2)
            direction = first.div(second.sqrt().add_(hyper["eps"]))
            direction.add_(master, alpha=hyper["weight_decay"])
            ratio = 1.0 if hyper["adam"] else _trust_ratio(master, direction)
            master.add_(direction, alpha=-hyper["lr"] * ratio)


def _relative_length(hyper: Hyper, step: int) -> float:
    """Return Adafactor's step length before parameter scaling: ``lr``, or 1/sqrt(step) limited.

    The limit is 1e-2 (algorithm 6), or 1e-6 * step with ``warmup_init`` (section 9).
    """
    if not hyper["relative_step"]:
        return float(hyper["lr"])
    limit = 1e-6 * step if hyper["warmup_init"] else 1e-2
    return min(limit, 1.0 / sqrt(step))


def _normalised(gradient: Tensor, state: State, hyper: Hyper, step: int) -> Tensor:
    """Update the (factored) second moment, and return the gradient over its root."""
    keep = 1.0 - step ** hyper["decay_rate"]
    squares = gradient.square().add_(hyper["eps"][0])
    if "exp_avg_sq" in state:
        second = state["exp_avg_sq"].lerp_(squares, 1.0 - keep)
        return second.rsqrt().mul_(gradient)
    row = state["exp_avg_sq_row"].lerp_(squares.mean(dim=-1), 1.0 - keep)
    column = state["exp_avg_sq_col"].lerp_(squares.mean(dim=-2), 1.0 - keep)
    row_factor = (row / row.mean(dim=-1, keepdim=True)).rsqrt_().unsqueeze(-1)
    return gradient * row_factor * column.rsqrt().unsqueeze(-2)


def _root_mean_square(tensor: Tensor) -> float:
    return float(torch.linalg.vector_norm(tensor)) / sqrt(max(tensor.numel(), 1))


def _trust_ratio(master: Tensor, direction: Tensor) -> float:
    """Return the limited norm of the parameter over that of its direction; 1 where one vanishes."""
    master_norm = min(float(torch.linalg.vector_norm(master)), LARGEST_LAMB_NORM)
    direction_norm = float(torch.linalg.vector_norm(direction))
    return master_norm / direction_norm if master_norm and direction_norm else 1.0


@register
class Muon(Rule):
    """Momentum with all singular values made nearly one.

    Jordan et al. 2024, https://kellerjordan.github.io/posts/muon. The rate is multiplied by
    sqrt(max(1, rows / columns)). A tensor of more than two dimensions is a matrix with its first
    dimension as rows, one of fewer is a matrix of a single row, whose orthogonal form is its
    direction.
    """

    flops_per_element = 12
    counts_updates = False

    class Arguments(Config):
        """Hyper-parameters."""

        lr: LearningRate = 2e-2
        weight_decay: NonNegative = 1e-2
        momentum: Decay = 0.95
        nesterov: bool = True
        ns_steps: NonNegativeInt = 5

    def state_shapes(self, shape: Shape, hyper: Hyper) -> dict[str, Shape]:  # noqa: ARG002
        return {"momentum_buffer": shape}

    def flops(self, shape: Shape, hyper: Hyper) -> int:
        """Add the matrix products of the iterations: X X^T, its square, and the product with X."""
        short, long = sorted(_matrix_shape(shape))
        iteration = 2 * short**2 * long + (2 * short**3 + 3 * short**2) + 2 * short * long
        iteration += 2 * short**2 * long
        return super().flops(shape, hyper) + int(hyper["ns_steps"]) * iteration

    def update(self, parameters: Sequence[Parameter], hyper: Hyper, step: int) -> None:  # noqa: ARG002
        lr, momentum = hyper["lr"], hyper["momentum"]
        for master, gradient, state in parameters:
            buffer = state["momentum_buffer"].lerp_(gradient, 1 - momentum)
            direction = gradient.lerp(buffer, momentum) if hyper["nesterov"] else buffer
            rows, columns = _matrix_shape(tuple(master.shape))
            change = _orthogonalised(direction.reshape(rows, columns), hyper["ns_steps"])
            master.mul_(1 - lr * hyper["weight_decay"])
            rate = lr * sqrt(max(1, rows / columns))
            master.add_(change.reshape(master.shape), alpha=-rate)


def _matrix_shape(shape: Shape) -> tuple[int, int]:
    """Return the rows and columns of the matrix that a parameter is treated as."""
    if len(shape) < 2:
        return 1, prod(shape)
    return shape[0], prod(shape[1:])


def _orthogonalised(matrix: Tensor, num_iterations: int) -> Tensor:
    """Return a bfloat16 matrix with the singular vectors of ``matrix`` and values near one."""
    a, b, c = COEFFICIENTS
    is_tall = matrix.shape[0] > matrix.shape[1]
    x = matrix.bfloat16()
    x = x.T if is_tall else x
    x = x / x.norm().clamp(min=SMALLEST_NORM)
    for _ in range(num_iterations):
        gram = x @ x.T
        x = torch.addmm(x, torch.addmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.T if is_tall else x
