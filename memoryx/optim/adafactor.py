"""Adafactor: second moments of a matrix kept as one row and one column."""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt

import torch
from torch import Tensor

from memoryx.optim.rule import Hyper, Parameter, Shape, State


class Adafactor:
    """Shazeer and Stern 2018, arXiv:1804.04235, algorithms 4 (matrices), 5 (vectors) and 6.

    A tensor of more than two dimensions is factored over its last two. Means stand where the paper
    has sums, which is the same after normalisation. ``weight_decay`` shrinks the master by the
    step length of the update; ``beta1`` (None: off) averages the updates.
    """

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


def _relative_length(hyper: Hyper, step: int) -> float:
    """Step length before parameter scaling: ``lr``, or 1/sqrt(step) with a ceiling.

    The ceiling is 1e-2 (algorithm 6), or 1e-6 * step with ``warmup_init`` (section 9).
    """
    if not hyper["relative_step"]:
        return float(hyper["lr"])
    ceiling = 1e-6 * step if hyper["warmup_init"] else 1e-2
    return min(ceiling, 1.0 / sqrt(step))


def _normalised(gradient: Tensor, state: State, hyper: Hyper, step: int) -> Tensor:
    """The gradient over the root of its (factored) second moment, which is updated first."""
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
