"""Gradient clipping, bit for bit ``torch.nn.utils.clip_grad_norm_`` and ``clip_grad_value_``.

The functions are the steps that several weight servers take: each computes the norms of its own
gradients, one server combines all norms in master order, and each scales its own gradients by the
same coefficient.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor


def gradient_norms(gradients: Iterable[Tensor]) -> list[float]:
    """Return the L2 norm of each fp32 gradient, computed in fp32."""
    return [float(torch.linalg.vector_norm(gradient)) for gradient in gradients]


def total_norm(norms: Sequence[float]) -> float:
    """Return the L2 norm of all gradients from their norms; the order of ``norms`` matters."""
    return float(torch.linalg.vector_norm(torch.tensor(norms, dtype=torch.float32)))


def clip_coefficient(total: float, max_norm: float) -> float:
    """Return the factor of every gradient: min(1, max_norm / (total + 1e-6)), in fp32.

    It is NaN if ``total`` is NaN. The 1e-6 is torch's guard against division by zero.
    """
    coefficient = max_norm / (torch.tensor(total, dtype=torch.float32) + 1e-6)
    return float(torch.clamp(coefficient, max=1.0))


def clip_value_(gradients: Sequence[Tensor], max_value: float) -> None:
    """Clamp every element to [-max_value, max_value], in place."""
    for gradient in gradients:
        gradient.clamp_(min=-max_value, max=max_value)
