"""Muon: momentum, orthogonalised by Newton-Schulz iterations in bfloat16.

For matrices it is bit for bit ``torch.optim.Muon``. Arguments and defaults are the vendor's
(cerebras_pytorch 2.10, ``optim``).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod, sqrt
from typing import TYPE_CHECKING

from pydantic import NonNegativeInt

from memoryx.optim.lazy_torch import torch
from memoryx.optim.rule import (
    Decay,
    Hyper,
    LearningRate,
    NonNegative,
    Parameter,
    Rule,
    Shape,
    register,
)
from waferstream.core.config import Config

if TYPE_CHECKING:
    from torch import Tensor

COEFFICIENTS = (3.4445, -4.7750, 2.0315)
"""Of the quintic iteration a X + b (X X^T) X + c (X X^T)^2 X (Jordan et al. 2024)."""

SMALLEST_NORM = 1e-7
"""Bound of the divisor below, so that a gradient of zeros stays zero (Jordan et al. 2024)."""


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
